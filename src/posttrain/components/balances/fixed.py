"""The same share of imitation in every step, and the rest for reinforcement.

Source: CHORD-phi, Zhang et al. 2025, arXiv:2508.11408: (1 - mu) times the reinforcement loss plus mu times the
imitation loss, with mu = 0.1.
"""

from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.balances import Balance, Shares, State

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Fixed(Balance):
    """A constant mu."""

    mu: Share = 0.1
    """Share of imitation, in [0, 1]: 0 is reinforcement alone, 1 imitation alone (0.1 in CHORD-phi)."""

    def shares(self, state: State, *, seed: int, step: int, steps: int) -> Shares:
        """1 - mu, and mu."""
        return Shares(sampled=1.0 - self.mu, demonstrated=self.mu)
