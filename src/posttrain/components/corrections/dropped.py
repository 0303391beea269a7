"""Importance weight of each token, with tokens left out whose weight is too large.

Source: AReaL's decoupled loss as configured in ASearcher (arXiv 2508.07976; areal/utils/functional.py): the weight
pi_prox / pi_behaviour of a token multiplies its loss, and a token whose weight is above the cap (5) is dropped: its
weight is 0, and it still counts in the mean. With ``ppo_clip``, whose old log-probabilities are then the learner's
before the update, this is decoupled PPO (Hilton et al. 2022, arXiv:2110.00641): the clip is about the proximal policy,
the weight about the one that sampled.

Differs: a token that was not sampled (of a demonstration) gets 1.
"""

import math
from typing import TYPE_CHECKING

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.corrections import Correction
from posttrain.types import Tokens

if TYPE_CHECKING:
    import torch


@frozen
class Dropped(Correction):
    """Importance weight of each token; 0 above a cap."""

    cap: PositiveFloat = 5.0
    """Largest weight that is learned from (5 in the source)."""

    def __call__(self, tokens: Tokens) -> "torch.Tensor":
        """[T] exp(old - behavior), or 0 where that is above the cap."""
        gap_T = (tokens.old_logp_T - tokens.behavior_logp_T).detach()
        bound = math.log(self.cap)
        factor_T = gap_T.clamp(max=bound).exp() * (gap_T <= bound)
        return factor_T.where(~gap_T.isnan(), factor_T.new_ones(()))
