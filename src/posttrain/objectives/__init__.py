"""Per-token surrogate losses.

Contract: a loss for each token, to be minimised; finite at extreme ratios; zero advantage gives zero gradient; on
policy the gradient is that of REINFORCE; it solves a four-armed bandit. A member for which a law does not hold names
it in `exceptions`.
"""

from typing import ClassVar

from posttrain.component import Component
from posttrain.types import PerToken, Tokens


class Objective(Component):
    """A surrogate whose gradient improves the policy."""

    needs: ClassVar[frozenset[str]] = frozenset()
    """Costly signals that `Tokens` must carry: ``entropy``, ``value``, ``<role>_logp``."""
    exceptions: ClassVar[frozenset[str]] = frozenset()
    """Laws of the family that do not hold for this member: ``zero_advantage``, ``reinforce``, ``bandit``."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token."""
        raise NotImplementedError
