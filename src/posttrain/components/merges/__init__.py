"""How the weights of several models of one shape become those of one.

Contract: tensors come one name at a time, in float64, and are only read; models that are equal give the same model
again. A method that works on differences takes the first model as what they are differences from.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posttrain.component import Component

if TYPE_CHECKING:
    import torch


class Merge(Component):
    """A rule for each tensor by itself, so that whole models never have to be held in float64."""

    def check(self, count: int) -> None:
        """Raise `UserError` where this many models cannot be merged with these settings."""

    def __call__(self, name: str, tensors: "Sequence[torch.Tensor]") -> "torch.Tensor":
        """The merged tensor of the parameter `name`, from that of each model in order; float64 like them."""
        raise NotImplementedError
