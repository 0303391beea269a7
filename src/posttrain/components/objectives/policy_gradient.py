"""REINFORCE: raise the log-probability of each token in proportion to its advantage.

Source: Williams 1992, doi:10.1007/BF00992696. The loss is -A log p; there is no importance ratio and no clipping, so
it is meant for one update per batch of fresh samples.
"""

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens


@frozen
class PolicyGradient(Objective):
    """Minus advantage times log-probability."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token."""
        return PerToken(loss_T=-tokens.advantage_T * tokens.logp_T)
