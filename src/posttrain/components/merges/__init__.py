"""Merges: combine the weights of several models of one shape into one model.

Contract: tensors are given one name at a time, in float64, and are only read. Equal models give the same model. A
method that works on differences takes the first model as their base.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posttrain.component import Component

if TYPE_CHECKING:
    import torch


class Merge(Component):
    """Merges tensor by tensor, so that whole models are never in memory in float64."""

    def check(self, count: int) -> None:
        """Raise `UserError` where this many models cannot be merged with these settings."""

    def __call__(self, name: str, tensors: "Sequence[torch.Tensor]") -> "torch.Tensor":
        """The merged tensor of the parameter `name`, from that of each model in order; float64 like them."""
        raise NotImplementedError
