"""Tokens of demonstrations by a ratio to a mixture of policies, with an advantage that is larger where p is small.

Source: RL-PLUS, Dong et al. 2025, arXiv:2508.00222, equation 4, and its release. The author of a demonstration is
unknown; its probability is taken as pi_omega = (pi_old + u) / 2, where pi_old is the policy's before the update. The
ratio is r = 2 p / (pi_old + pi_omega), without clipping, the advantage A (1 - p)^gamma with p not differentiated, and
the loss -r A (1 - p)^gamma, in which only the p of the numerator is differentiated. In the paper u is uniform, 1 / V;
the release has u = 1, so that r = 4 p / (3 pi_old + 1), and a token that the policy finds very unlikely is hardly
learned.

Differs: log-probabilities are held above -20, so that the ratio stays finite. The paper is read from two notes on it.
"""

from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

LEAST = -20.0
"""Smallest log-probability, in nats."""


@frozen
class MultipleImportance(Objective):
    """Minus ratio times exploration advantage."""

    exceptions: ClassVar[frozenset[str]] = frozenset({"reinforce"})

    uniform: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """u: 1 as released; one over the number of tokens of the vocabulary in the paper."""
    gamma: NonNegativeFloat = 0.5
    """Exponent of 1 - p (0.5 in the release); 0 leaves the advantage as it is."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; metrics are the ratio and the factor of the advantage."""
        p_T = tokens.logp_T.clamp(min=LEAST).exp()
        old_T = tokens.old_logp_T.clamp(min=LEAST).exp()
        ratio_T = 2.0 * p_T / (old_T + 0.5 * (old_T + self.uniform))
        factor_T = (1.0 - p_T.detach()).clamp(min=0.0) ** self.gamma
        metrics = {"ratio": ratio_T.detach(), "exploration": factor_T}
        return PerToken(loss_T=-ratio_T * factor_T * tokens.advantage_T, metrics=metrics)
