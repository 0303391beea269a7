"""Task arithmetic: the base plus a multiple of the sum of what each model differs from it by.

Source: Ilharco et al. 2022, "Editing models with task arithmetic", arXiv:2212.04089; for long-to-short reasoning Wu et
al. 2025, arXiv:2503.20641, and its release: theta_0 + alpha sum_k (theta_k - theta_0), with one alpha for all models.
With the short model as the base and one long model it is their interpolation, in which the long one has weight alpha.

Differs: nothing known. The release rounds in the type of the weights; here sums are in float64.

Measured here, one seed (docs/experiments/long_to_short.py): from the bundled model, 19 % of sums in 9.5 tokens, to one
that works them out, 74.5 % in 28.7 tokens, both rise together: 21 % and 10 tokens at alpha 0.5, 32 % and 13.6 at 0.7,
60 % and 24.2 at 0.9. There is no plateau: nothing is to be shortened where the short model cannot do the task.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from posttrain.component import frozen
from posttrain.components.merges import Merge, Survey
from posttrain.components.merges._differences import added, check_base

if TYPE_CHECKING:
    import torch

ROWS: Final = (292,)


@frozen
class TaskArithmetic(Merge):
    """theta_0 + alpha sum_k (theta_k - theta_0)."""

    alpha: float = 0.7
    """Multiple of the differences (0.7 in the paper, at all sizes); 0 gives the base."""

    def check(self, count: int) -> None:
        """There must be a model beside the base."""
        check_base(self.kind, count)

    def at(self, coefficient: float) -> Self:
        """With another alpha."""
        return replace(self, alpha=coefficient)

    def __call__(self, name: str, tensors: "Sequence[torch.Tensor]", survey: Survey) -> "torch.Tensor":
        """The sum."""
        return added(tensors, self.alpha)
