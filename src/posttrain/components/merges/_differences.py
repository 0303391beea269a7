"""Sums of what models differ by from their base."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posttrain.errors import UserError

if TYPE_CHECKING:
    import torch


def check_base(kind: str, count: int) -> None:
    """Raise `UserError` where there is no model beside the base."""
    if count < 2:
        raise UserError(f"the merge '{kind}' adds what other models differ by to the first one; name at least two")


def added(tensors: "Sequence[torch.Tensor]", alpha: float) -> "torch.Tensor":
    """The base plus alpha times the differences: to the bit the base at 0, and with one other model that one at 1."""
    base, *others = tensors
    merged = (1.0 - alpha * len(others)) * base
    for other in others:
        merged.add_(other, alpha=alpha)
    return merged
