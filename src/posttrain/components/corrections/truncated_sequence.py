"""Truncated importance weight of each sequence: the probability of all its sampled tokens, learner over sampler.

Source: truncated importance sampling at the level of sequences (Ionides 2008, doi:10.1198/106186008X320456, min(w, C));
Yao et al. 2025 (fengyao.notion.site/off-policy-rl) weigh tokens. The weight of a sequence is unbiased before it is
truncated, where that of a token leaves out what came before it; its variance grows with the length.

Differs: tokens that were not sampled (of a demonstration) get 1 and do not count in the product. The log of the
product is held within +-20.
"""

import math
from typing import TYPE_CHECKING

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.corrections import Correction
from posttrain.types import Tokens

if TYPE_CHECKING:
    import torch

MAX_LOG_RATIO = 20.0


@frozen
class TruncatedSequence(Correction):
    """One importance weight for all tokens of a sequence, truncated from above."""

    cap: PositiveFloat = 2.0
    """C, the largest weight."""

    def __call__(self, tokens: Tokens) -> "torch.Tensor":
        """[T] min(exp(sum of old - behavior over the sequence), cap)."""
        gap_T = (tokens.old_logp_T - tokens.behavior_logp_T).detach()
        sampled_T = ~gap_T.isnan()
        gap_T = gap_T.nan_to_num(nan=0.0)
        sum_N = gap_T.new_zeros(len(tokens.length_N)).index_add(0, tokens.sequence_T, gap_T)
        weight_N = sum_N.clamp(-MAX_LOG_RATIO, min(math.log(self.cap), MAX_LOG_RATIO)).exp()
        weight_T = weight_N[tokens.sequence_T]
        return weight_T.where(sampled_T, weight_T.new_ones(()))
