"""Imitation: the negative log-likelihood of each trained token, whatever its advantage.

Source: supervised fine-tuning as in Ouyang et al. 2022, arXiv:2203.02155, section 3.5.
"""

from typing import ClassVar, Literal

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens


@frozen
class Likelihood(Objective):
    """Minus log-probability."""

    exceptions: ClassVar[frozenset[str]] = frozenset({"zero_advantage", "reinforce", "bandit"})

    per: Literal["token", "sequence"] = "token"
    """Unit of the loss where a reducer averages over the tokens of a sequence: ``sequence`` multiplies by their number,
    which gives their sum, the likelihood of the whole sequence."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token."""
        loss_T = -tokens.logp_T
        if self.per == "sequence":
            loss_T = loss_T * tokens.length_N[tokens.sequence_T]
        return PerToken(loss_T=loss_T)
