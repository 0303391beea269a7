"""Soup: the weighted average of the models' weights.

Source: Wortsman et al. 2022, "Model soups", arXiv:2203.05482, section 3; of two SFT models as the reference of RLHF:
SALSA, arXiv:2411.01798.

Differs: nothing known. Weights outside of [0, 1] extrapolate beyond a model, and are allowed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from posttrain.component import frozen
from posttrain.components.merges import Merge, Survey
from posttrain.errors import UserError

if TYPE_CHECKING:
    import torch


@frozen
class Soup(Merge):
    """sum_i w_i theta_i; a model of weight 0 is not read."""

    weights: tuple[float, ...] | None = None
    """One weight per model, in their order, with sum 1; None weighs all equally."""

    def check(self, count: int) -> None:
        """There must be a weight for each model, and their sum must be 1."""
        if self.weights is None:
            return
        if len(self.weights) != count:
            raise UserError(
                f"weights has {len(self.weights)} numbers ({_listed(self.weights)}) for {count} models; give one per "
                "model in their order, or leave it out to weigh all equally"
            )
        if abs(sum(self.weights) - 1.0) > 1e-6:
            raise UserError(
                f"the weights {_listed(self.weights)} have the sum {sum(self.weights):g}, which would scale the whole "
                "model; they must add up to 1"
            )

    def at(self, coefficient: float) -> Self:
        """The average of two models in which the second one has this weight."""
        if self.weights and len(self.weights) != 2:
            raise UserError(f"a sweep of a soup is between two models, and there are {len(self.weights)} weights")
        return replace(self, weights=(1.0 - coefficient, coefficient))

    def __call__(self, name: str, tensors: "Sequence[torch.Tensor]", survey: Survey) -> "torch.Tensor":
        """The weighted sum; exactly a model's own tensor where that model has weight 1."""
        weights = self.weights or (1.0 / len(tensors),) * len(tensors)
        parts = [weight * tensor for weight, tensor in zip(weights, tensors, strict=True) if weight]
        merged = parts[0]
        for part in parts[1:]:
            merged = merged + part
        return merged


def _listed(weights: Sequence[float]) -> str:
    return ", ".join(f"{weight:g}" for weight in weights)
