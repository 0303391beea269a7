"""Merges: combine the weights of several models of one shape into one model.

Contract: tensors are given one name at a time, in float64, and are only read. Equal models give the same model. A
method that works on differences takes the first model as their base. What it needs to have seen of the whole models is
computed once, by `survey`, and given with every tensor.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from posttrain.component import Component
from posttrain.errors import UserError

if TYPE_CHECKING:
    import torch

Survey = Mapping[str, Any]
"""What a method has computed from the whole models; empty for most."""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """The models that are merged, all of their tensors; each is computed when it is called."""

    tensors: "Callable[[], Iterator[tuple[str, Sequence[torch.Tensor]]]]"
    """Every parameter with the tensors of all models, as for `Merge.__call__`."""
    inputs: "Callable[[], Mapping[str, torch.Tensor]]"
    """By name of the weight of a linear layer, [inputs] mean absolute value of each of its inputs in the first model,
    over the calibration texts. Raises `UserError` without such texts."""
    sensitivities: "Callable[[], Sequence[Mapping[str, float]]]"
    """For each model but the first, by name of the parameter the sum of the sizes of weight times gradient of its loss
    on the calibration texts. Raises `UserError` without such texts."""


class Merge(Component):
    """Merges tensor by tensor, so that whole models are never in memory in float64."""

    def check(self, count: int) -> None:
        """Raise `UserError` where this many models cannot be merged with these settings."""

    def at(self, coefficient: float) -> Self:
        """The same method with this coefficient, for a sweep; at 0 the result is the first model.

        Raises `UserError` for a method without one.
        """
        raise UserError(
            f"the merge '{self.kind}' has no coefficient to sweep; take one that has: ties, task_arithmetic"
        )

    def survey(self, whole: Whole) -> Survey:
        """What it needs to have seen of the whole models before the first tensor."""
        return {}

    def __call__(self, name: str, tensors: "Sequence[torch.Tensor]", survey: Survey) -> "torch.Tensor":
        """The merged tensor of the parameter `name`, from that of each model in order; float64 like them."""
        raise NotImplementedError
