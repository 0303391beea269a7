"""SVD: task arithmetic on the largest singular values of the differences.

Source: two of the methods of Wu et al. 2025, arXiv:2503.20641: Twin-Merging without its router (Lu et al. 2024,
arXiv:2406.15479), which truncates each task vector, and LoRE-Merging (Liu et al. 2025, arXiv:2502.10749), which takes a
threshold off its singular values. Of each matrix d_k = theta_k - theta_0 the largest singular values are kept; the
result is theta_0 + alpha sum_k of what is left. With all of them it is task arithmetic.

Differs: neither is in the release; the form is that of their descriptions. Parameters that are no matrices keep their
whole difference. The singular vectors are those of the smaller Gram matrix of d_k in float64, which are exact enough
for what is kept.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.merges import Merge, Survey
from posttrain.components.merges._differences import added, check_base

if TYPE_CHECKING:
    import torch

ROWS: Final = (292,)


@frozen
class SVD(Merge):
    """theta_0 + alpha sum_k of the differences' largest singular values."""

    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2
    """Share of a matrix's singular values that are kept, rounded up."""
    threshold: NonNegativeFloat = 0.0
    """Taken off every singular value, those below it become 0 (LoRE); 0 leaves them as they are (Twin)."""
    alpha: float = 1.0
    """Multiple of the differences; 0 gives the base."""

    def check(self, count: int) -> None:
        """There must be a model beside the base."""
        check_base(self.kind, count)

    def at(self, coefficient: float) -> Self:
        """With another alpha."""
        return replace(self, alpha=coefficient)

    def __call__(self, name: str, tensors: "Sequence[torch.Tensor]", survey: Survey) -> "torch.Tensor":
        """Truncate, add."""
        base, *others = tensors
        truncates = self.share < 1.0 or self.threshold > 0.0
        if base.ndim != 2 or not truncates or self.alpha == 0.0:
            return added(tensors, self.alpha)
        merged = base.clone()
        for other in others:
            merged.add_(self.low_rank(other - base), alpha=self.alpha)
        return merged

    def low_rank(self, difference: "torch.Tensor") -> "torch.Tensor":
        """What is kept of a matrix."""
        import torch

        tall = difference if difference.shape[0] >= difference.shape[1] else difference.T
        squares, vectors = torch.linalg.eigh(tall.T @ tall)  # ascending
        values, vectors = squares.clamp(min=0).sqrt().flip(0), vectors.flip(1)
        rank = math.ceil(self.share * len(values))
        values, vectors = values[:rank], vectors[:, :rank]
        left = (values - self.threshold).clamp(min=0)
        scale = torch.where(values > 0, left / values.clamp(min=torch.finfo(values.dtype).tiny), 0.0)
        kept: torch.Tensor = (tall @ (vectors * scale)) @ vectors.T
        return kept if tall is difference else kept.T
