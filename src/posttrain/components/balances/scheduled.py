"""A share of imitation that rises to a peak and decays to a valley along a cosine; the rest is for reinforcement.

Source: CHORD-mu, Zhang et al. 2025, arXiv:2508.11408, and its release: in step t, mu is (t / W) peak for t < W, then
valley + (peak - valley) (1 + cos(pi (t - W) / D)) / 2 for t < W + D, then the valley. The loss is (1 - mu) times that
of reinforcement plus mu times that of imitation.
"""

import math
from typing import Annotated

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.balances import Balance, Shares, State

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Scheduled(Balance):
    """mu by the number of the step."""

    peak: Share = 0.9
    """mu at the end of the warm-up (0.9 in the paper)."""
    valley: Share = 0.05
    """mu at the end of the decay, and from then on (0.05 in the paper)."""
    warmup: NonNegativeInt = 0
    """W: steps in which mu rises linearly from 0 (0 in the paper)."""
    decay: NonNegativeInt = 200
    """D: steps of the decay (200 in the paper); without warm-up and decay mu is the valley throughout."""

    def shares(self, state: State, *, seed: int, step: int, steps: int) -> Shares:
        """1 - mu, and mu."""
        mu = self.at(step)
        return Shares(sampled=1.0 - mu, demonstrated=mu)

    def at(self, step: int) -> float:
        """The share of imitation in a step, counted from 0."""
        if step < self.warmup:
            return step / self.warmup * self.peak
        if step >= self.warmup + self.decay:
            return self.valley
        decayed = (step - self.warmup) / self.decay
        return self.valley + (self.peak - self.valley) * 0.5 * (1.0 + math.cos(math.pi * decayed))
