"""Imitation: the negative log-likelihood of each trained token, whatever its advantage.

Source: supervised fine-tuning as in Ouyang et al. 2022, arXiv:2203.02155, section 3.5. Weights of tokens: CHORD-phi,
Zhang et al. 2025, arXiv:2508.11408, phi = p (1 - p), largest where the policy is undecided; its release also has p. A
weight is not differentiated, and weights are not normalised: where they are small, so is the loss.
"""

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens


@frozen
class Likelihood(Objective):
    """Minus log-probability, optionally weighted."""

    exceptions: ClassVar[frozenset[str]] = frozenset({"zero_advantage", "reinforce", "bandit"})
    uses_old: ClassVar[bool] = False

    per: Literal["token", "sequence"] = "token"
    """Unit of the loss where a reducer averages over the tokens of a sequence: ``sequence`` multiplies by their number,
    which gives their sum, the likelihood of the whole sequence."""
    weight: Literal["one", "probability", "undecided"] = "one"
    """Weight of a token with the probability p: 1, p, or p (1 - p)."""
    cutoff: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Probability above which a token has no gradient; 1 is off."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; a weight is the metric ``imitation_weight``."""
        logp_T = tokens.logp_T if self.cutoff == 1.0 else tokens.logp_T.clamp(max=math.log(self.cutoff))
        loss_T = -logp_T
        if self.per == "sequence":
            loss_T = loss_T * tokens.length_N[tokens.sequence_T]
        if self.weight == "one":
            return PerToken(loss_T=loss_T)
        p_T = tokens.logp_T.detach().exp()
        weight_T = p_T if self.weight == "probability" else p_T * (1.0 - p_T)
        return PerToken(loss_T=weight_T * loss_T, metrics={"imitation_weight": weight_T})
