"""The task of a planted subsequence, exactly: reward, values and heterogeneity of mixtures of procedural policies.

Setlur et al. 2025, arXiv:2502.12118. In a trace of H symbols a subsequence of k symbols appears in order; the reward
is the number of symbols after it is complete, 0 where it is not. A procedural policy emits the next symbol of the
subsequence with probability gamma. The base policy draws gamma once per trace.

What a trace has shown of gamma is the number of symbols j that fit and of the t - j that did not, so that (t, j) is the
state: its value is that of the mixture, weighed by the posterior of gamma.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from posttrain.statistics.tilting import tilted

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Planted:
    """A mixture of procedural policies."""

    gammas: Sequence[float]
    """Chance of the next symbol of the subsequence, by policy."""
    weights: Sequence[float]
    """Chance of each policy; they add up to 1."""
    length: int
    """k, symbols of the subsequence."""
    horizon: int
    """H, symbols of a trace."""

    @cached_property
    def rewards(self) -> Array:
        """[H + 1] chance of each reward: the subsequence is complete with symbol T = H - reward, negative binomial."""
        found = np.zeros(self.horizon + 1)
        for gamma, weight in zip(self.gammas, self.weights, strict=True):
            for time in range(self.length, self.horizon + 1):
                ways = math.comb(time - 1, self.length - 1)
                found[self.horizon - time] += weight * ways * gamma**self.length * (1 - gamma) ** (time - self.length)
        # No reward also where it is never complete; a trace that completes it with its last symbol has none either.
        found[0] += 1.0 - found.sum()
        return found

    @property
    def mean(self) -> float:
        """Mean reward."""
        return float(self.rewards @ np.arange(self.horizon + 1))

    @property
    def variance(self) -> float:
        """Variance of the reward."""
        return float(self.rewards @ np.arange(self.horizon + 1) ** 2) - self.mean**2

    @property
    def success(self) -> float:
        """Chance that the reward is above 0."""
        return 1.0 - float(self.rewards[0])

    def best_of(self, n: int) -> float:
        """Mean of the largest reward of n traces."""
        below = np.minimum(1.0, np.cumsum(self.rewards))
        return float(np.sum(1.0 - below[:-1] ** n))

    def above(self, stds: float) -> float:
        """Chance of a reward of at least the mean plus `stds` standard deviations."""
        bound = self.mean + stds * math.sqrt(self.variance)
        return float(self.rewards[np.arange(self.horizon + 1) >= bound - 1e-9].sum())

    def steps(self) -> Array:
        """[H] mean over states of the variance of Q over actions, by step; their sum is the variance of the reward."""
        found = np.zeros(self.horizon)
        for time in range(self.horizon):
            for fitting in range(min(time, self.length - 1) + 1):
                ways = math.comb(time, fitting)
                posterior, chance = self._posterior(time, fitting)
                reach = ways * chance
                fits = sum(p * g for p, g in zip(posterior, self.gammas, strict=True))
                gap = self._value(time + 1, fitting + 1) - self._value(time + 1, fitting)
                found[time] += reach * fits * (1 - fits) * gap**2
        return found

    def _value(self, time: int, fitting: int) -> float:
        """Mean reward from a state."""
        if fitting == self.length:
            return float(self.horizon - time)
        rest = Planted(self.gammas, self._posterior(time, fitting)[0], self.length - fitting, self.horizon - time)
        return rest.mean if rest.horizon >= rest.length else 0.0

    def _posterior(self, time: int, fitting: int) -> tuple[list[float], float]:
        """Chances of the policies after symbols of which some fit, and of these symbols in this order."""
        pairs = zip(self.gammas, self.weights, strict=True)
        joint = [weight * gamma**fitting * (1 - gamma) ** (time - fitting) for gamma, weight in pairs]
        return [value / sum(joint) for value in joint], sum(joint)

    def imitated(self) -> "Planted":
        """The mixture that imitates the rewarded traces (verifier-free): policies by how often they succeed."""
        joint = [w * alone.success for w, alone in zip(self.weights, self._alone, strict=True)]
        return replace(self, weights=[value / sum(joint) for value in joint])

    def verified(self, radius: float) -> "Planted":
        """The mixture of the largest mean reward in a chi-squared ball around the base (verifier-based)."""
        return replace(self, weights=tilted([alone.mean for alone in self._alone], self.weights, radius))

    def estimated(self, radius: float, traces: int, rng: np.random.Generator) -> tuple["Planted", "Planted"]:
        """Both from `traces` of the base: imitation has the rewarded ones, the verifier all with their rewards.

        Traces are counted by the policy that wrote them; one of which there is none has no weight.
        """
        drawn = rng.multinomial(traces, np.asarray(self.weights))
        rewards = [rng.choice(self.horizon + 1, n, p=own.rewards) for n, own in zip(drawn, self._alone, strict=True)]
        rewarded = np.array([np.count_nonzero(own) for own in rewards], np.float64)
        means = [float(own.mean()) if len(own) else 0.0 for own in rewards]
        free = replace(self, weights=(rewarded / rewarded.sum()).tolist()) if rewarded.sum() else self
        return free, replace(self, weights=tilted(means, (drawn / traces).tolist(), radius))

    @property
    def _alone(self) -> list["Planted"]:
        """Each policy by itself."""
        return [Planted((gamma,), (1.0,), self.length, self.horizon) for gamma in self.gammas]
