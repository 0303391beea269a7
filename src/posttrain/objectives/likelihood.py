"""Imitation: the negative log-likelihood of each trained token, whatever its advantage.

Source: supervised fine-tuning as in Ouyang et al. 2022, arXiv:2203.02155, section 3.5.
"""

from typing import ClassVar

from posttrain.component import frozen
from posttrain.objectives import Objective
from posttrain.types import PerToken, Tokens


@frozen
class Likelihood(Objective):
    """Minus log-probability."""

    exceptions: ClassVar[frozenset[str]] = frozenset({"zero_advantage", "reinforce", "bandit"})

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token."""
        return PerToken(loss_T=-tokens.logp_T)
