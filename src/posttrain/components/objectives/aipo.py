"""AIPO: REINFORCE with a truncated importance weight, for samples of older weights.

Source: LlamaRL (Wu et al. 2025, arXiv:2505.24034), section on off-policy corrections, as quoted in two notes, and a
port (nvidia-cosmos/cosmos-rl, grpo_trainer.py). The gradient of a token's objective is min(pi / mu, rho) A grad log pi,
with pi the learner and mu the policy that sampled. The weight is a number: above rho the gradient is rho A grad log pi,
and not 0. There is no lower limit and no rule for signs. Where pi is mu it is REINFORCE, to the bit.

The port clamps the ratio inside the graph, so that a token above rho has no gradient: `stop_above`.

Differs: the log-ratio is held within +-20, as in the port; a token that nobody sampled (of a demonstration) has the
weight 1.
"""

import math

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

MAX_LOG_RATIO = 20.0


@frozen
class AIPO(Objective):
    """Minus truncated weight times advantage times log-probability."""

    rho: PositiveFloat = 4.0
    """Largest weight (2 to 10 in the paper)."""
    stop_above: bool = False
    """Whether tokens above rho have no gradient (the port's reading) in place of one of weight rho."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; metrics are the weight and the share of tokens above rho."""
        gap_T = (tokens.logp_T.detach() - tokens.behavior_logp_T).nan_to_num(nan=0.0)
        gap_T = gap_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        above_T = gap_T > math.log(self.rho)
        weight_T = gap_T.exp().clamp(max=self.rho)
        loss_T = -(weight_T * tokens.advantage_T) * tokens.logp_T
        if self.stop_above:
            loss_T = loss_T.detach().where(above_T, loss_T)
        return PerToken(loss_T=loss_T, metrics={"weight": weight_T, "above_rho": above_T.to(weight_T.dtype)})
