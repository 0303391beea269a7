"""Bradley-Terry with a margin: clearer pairs must differ by more.

Source: Touvron et al. 2023 (Llama 2), arXiv:2307.09288, equation 2, where the margin is a step function of the
annotator's rating of the difference. With d the chosen score less the rejected one and m a number of the pair:

    loss = -log sigmoid(d - margin - scale m)

With a margin of 0 it is the loss of the stage without a ranking. Otherwise the gradient fades later, by the margin.

Differs: the margin is linear in the pair's number, which may itself be a step function.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rankings import Ranking

if TYPE_CHECKING:
    import torch


@frozen
class BradleyTerry(Ranking):
    """The logistic loss of a difference of scores, less a margin."""

    margin: NonNegativeFloat = 0.0
    """Margin of all pairs, in units of the score."""
    by: str | None = None
    """A number of each pair that adds to it: ``strength`` or ``margin``; None adds nothing."""
    scale: NonNegativeFloat = 1.0
    """Margin for one unit of that number (1/3 to 1 for each step of Llama 2's ratings)."""

    @property
    def reads(self) -> frozenset[str]:
        """The number that adds to the margin."""
        return frozenset() if self.by is None else frozenset({self.by})

    def __call__(self, gap_P: "torch.Tensor", numbers: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """[P] the loss of each pair."""
        from torch.nn.functional import logsigmoid

        own_P = 0.0 if self.by is None else self.scale * numbers[self.by].detach()
        return -logsigmoid(gap_P - self.margin - own_P)
