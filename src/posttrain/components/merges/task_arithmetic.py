"""Task arithmetic: the base plus a multiple of the sum of what each model differs from it by.

Source: Ilharco et al. 2022, "Editing models with task arithmetic", arXiv:2212.04089; for long-to-short reasoning Wu et
al. 2025, arXiv:2503.20641, and its release: theta_0 + alpha sum_k (theta_k - theta_0), with one alpha for all models.
With the short model as the base and one long model it is their interpolation, in which the long one has weight alpha.

Differs: nothing known. The release rounds in the type of the weights; here sums are in float64.

Measured here, five seeds (docs/experiments/long_to_short.py): from the bundled model, 19 % of sums in 9.5 tokens, to
one that works them out, 83.5 % [80.3, 86.7] in 32.4 tokens. Accuracy and length rise together, and early: 20.1 % and
9.7 tokens at alpha 0.1, 55.8 % [52.3, 59.3] and 22.6 at 0.2, 83.8 % [82.8, 84.8] and 32.4 at 0.3, and the same up to
1. Nothing is shortened: the short model cannot do the task, and no merge answers in fewer tokens than the long one
without an accuracy that is lower. So it is with TIES (69.0 % and 26.9 tokens at 0.25, 84.1 % and 32.5 at 0.5), DARE
(83.3 to 83.8 %) and SVD (83.5 %). The mean of two long models has 84.7 % [83.2, 86.3].
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
