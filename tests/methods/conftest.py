"""The tiny model and the short runs of tests/stages, for the tests of recipes."""

from tests.stages.conftest import small, tiny_folder, train

__all__ = ["small", "tiny_folder", "train"]
