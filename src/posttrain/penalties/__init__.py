"""Added terms: divergence from a reference, entropy.

A penalty acts either in the loss (differentiated) or in the reward (a number per sampled token, not differentiated).
"""

from collections.abc import Mapping

from posttrain.component import Component
from posttrain.types import FloatArray, PerToken, Tokens, Trajectory


class Penalty(Component):
    """A term added to the objective's loss, taken from the reward, or both."""

    @property
    def needs(self) -> frozenset[str]:
        """Costly signals that it reads: ``entropy``, ``<role>_logp``."""
        return frozenset()

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] term to add to each token's loss; None when it acts on the reward."""
        return None

    def in_reward(self, trajectory: Trajectory, signals: Mapping[str, FloatArray]) -> FloatArray | None:
        """[T] amount to add to each token's reward; None when it acts on the loss."""
        return None
