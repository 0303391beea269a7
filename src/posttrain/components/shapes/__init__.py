"""Shapes: kind and sizes of a new model, from which a model folder with random weights is made.

Contract: the folder is a function of the settings alone, and `posttrain.policies.loading.load_policy` loads it.
"""

from pathlib import Path

from pydantic import PositiveInt

from posttrain.component import Component, frozen


@frozen
class VisionShape:
    """Image input of a new model: one token per patch, a linear map of its pixels to the width of the model."""

    patch: PositiveInt = 4
    """Pixels on each side of a patch."""
    size: PositiveInt = 32
    """Pixels on the longest side of an image; larger images are refused."""


class Shape(Component):
    """Kind and sizes of a model with random initial weights."""

    default_kind = "decoder"

    def make(self, path: Path) -> Path:
        """Write a model folder with random weights at `path`, and return the path."""
        raise NotImplementedError
