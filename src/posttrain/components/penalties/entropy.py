"""Entropy bonus: a loss term that raises the policy's entropy.

Source: Mnih et al. 2016, arXiv:1602.01783, section 4; equation 9 of PPO, arXiv:1707.06347.
"""

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import ENTROPY, Signal
from posttrain.types import PerToken, Tokens


@frozen
class Entropy(Penalty):
    """Minus coefficient times the entropy of the distribution that each token was drawn from."""

    coefficient: float = 0.01
    """Weight in units of reward per nat (0.01 in both papers); a negative one lowers the entropy."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The exact entropy, over the whole vocabulary."""
        return frozenset({ENTROPY})

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] minus coefficient times entropy."""
        return PerToken(loss_T=-self.coefficient * tokens[ENTROPY])
