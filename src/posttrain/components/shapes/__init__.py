"""What a new model is: its kind and its sizes, from which a model folder with random weights is made.

Contract: the folder is a function of the settings alone, and `posttrain.policies.loading.load_policy` reads it.
"""

from pathlib import Path

from pydantic import PositiveInt

from posttrain.component import Component, frozen


@frozen
class VisionShape:
    """How a new model sees images: one token a patch, its pixels mapped to the width of the model."""

    patch: PositiveInt = 4
    """Pixels on each side of a patch."""
    size: PositiveInt = 32
    """Pixels on the longest side of an image; larger ones are refused."""


class Shape(Component):
    """Kind and sizes of a model that begins with random weights."""

    default_kind = "decoder"

    def make(self, path: Path) -> Path:
        """Write a folder with random weights at `path`, and return it."""
        raise NotImplementedError
