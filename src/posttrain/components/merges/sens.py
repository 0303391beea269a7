"""Sens-Merging: task arithmetic with a coefficient for each parameter, by how sensitive the model's loss is to it.

Source: Liu et al. 2025, arXiv:2502.12420, one of the methods of Wu et al. 2025, arXiv:2503.20641. With S_kl the sum of
|weight * gradient| over the parameter l of model k, of its loss on calibration texts, and s_kl = S_kl over its mean
over the parameters,

    theta_l = theta_0l + sum_k alpha c_kl (theta_k - theta_0)_l,    c_kl = L softmax_l(s_kl / T)

so that coefficients have the mean alpha over the L parameters, and a large temperature T gives task arithmetic. The
release calibrates the long model by short answers, and the short one by long answers.

Differs: the release of the second paper does not have it, and the paper's formulas were not at hand: this is the form
of its description. Its factor between tasks, from how well models' logits agree, is left out: long-to-short merging has
one task vector. Parameters take the place of layers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.merges import Merge, Survey, Whole
from posttrain.components.merges._differences import check_base

if TYPE_CHECKING:
    import torch

ROWS: Final = (292,)


@frozen
class Sens(Merge):
    """theta_0 + sum_k alpha c_kl (theta_k - theta_0)."""

    alpha: float = 0.7
    """Mean of the coefficients (0.4 at 1.5B, 0.7 at 7B, 0.8 at 14B); 0 gives the base."""
    temperature: PositiveFloat = 2.0
    """T (3, 2 and 6 in the paper); larger makes coefficients more equal."""

    def check(self, count: int) -> None:
        """There must be a model beside the base."""
        check_base(self.kind, count)

    def at(self, coefficient: float) -> Self:
        """With another alpha."""
        return replace(self, alpha=coefficient)

    def survey(self, whole: Whole) -> Survey:
        """The coefficients c of each model."""
        return {"coefficients": [self.coefficients(own) for own in whole.sensitivities()]}

    def coefficients(self, sensitivity: Mapping[str, float]) -> dict[str, float]:
        """By parameter, with the mean 1."""
        mean = math.fsum(sensitivity.values()) / len(sensitivity)
        if mean <= 0.0:
            return dict.fromkeys(sensitivity, 1.0)
        scaled = {name: value / mean / self.temperature for name, value in sensitivity.items()}
        highest = max(scaled.values())
        parts = {name: math.exp(value - highest) for name, value in scaled.items()}
        total = math.fsum(parts.values())
        return {name: len(parts) * part / total for name, part in parts.items()}

    def __call__(self, name: str, tensors: "Sequence[torch.Tensor]", survey: Survey) -> "torch.Tensor":
        """The sum."""
        base, *others = tensors
        merged = base.clone()
        for other, own in zip(others, survey["coefficients"], strict=True):
            merged.add_(other - base, alpha=self.alpha * own[name])
        return merged
