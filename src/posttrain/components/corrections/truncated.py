"""TIS: truncated importance weight of each token, its probability under the learner over that under the sampler.

Source: Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"
(fengyao.notion.site/off-policy-rl), truncated importance sampling at the level of tokens: min(pi_learner / pi_sampler,
C), with pi_learner at the weights that sampled. It is not differentiated.

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
class Truncated(Correction):
    """Importance weight of each token, truncated from above."""

    cap: PositiveFloat = 2.0
    """C, the largest weight."""

    def __call__(self, tokens: Tokens) -> "torch.Tensor":
        """[T] min(exp(old - behavior), cap)."""
        gap_T = (tokens.old_logp_T - tokens.behavior_logp_T).detach()
        return gap_T.nan_to_num(nan=0.0).clamp(max=math.log(self.cap)).exp()
