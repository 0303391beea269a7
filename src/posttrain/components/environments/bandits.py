"""A bandit with some arms, one of which is better: each turn names an arm, and the observation is its reward.

Source: BanditBench of EVOLvE, arXiv:2410.06238, and its released code. Bernoulli: the best arm has the mean 0.5 + gap /
2, all others 0.5 - gap / 2. Gaussian: means from N(0, gap), noise of the same standard deviation. Which arm is best is
drawn by the task's key. A turn that names no arm (after strip, in lower case) plays a random one, which is shown, and
is counted as invalid. With `history=summary` the observation has count and mean of each arm, with `guidance` also the
bonus and the value that the oracle adds, two decimals each, ``inf`` and 0 for an arm without a turn.

The oracle is UCB: every arm once, in their order, then the largest mean + sqrt(0.5 ln t / count), t being the turns so
far; the first of equals. In the text of the paper the constant stands before the root. Regret is summed from means, not
from rewards.

Differs: arms have letters, or names of your own. The contextual bandits (MovieLens, LinUCB) are not here.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from random import Random
from statistics import NormalDist
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

ALPHA: Final = 0.5
MOST: Final = 20
SMALLEST: Final = 1e-9
"""Draws of normal numbers stay this far from 0 and 1."""


@frozen
class Bandits(Environment):
    """Bandits whose arms are drawn by the task's key, and their rewards by the rollout."""

    arms: Annotated[int, Field(ge=2, le=MOST)] = 5
    """Number of arms (5 or 20 in the benchmark)."""
    gap: PositiveFloat = 0.5
    """Bernoulli: how much better the best arm is (0.5 easy, 0.2 hard). Gaussian: std of the means, and of the noise."""
    rewards: Literal["bernoulli", "gaussian"] = "bernoulli"
    """Distribution of rewards; those of Gaussian arms are shown with one decimal."""
    horizon: PositiveInt = 50
    """Turns of an episode (300 easy, 1000 hard)."""
    history: Literal["raw", "summary", "guidance"] = "raw"
    """What observations have besides the reward."""
    names: tuple[Annotated[str, Field(pattern=r"^[a-z0-9]+$", max_length=30)], ...] = ()
    """Names of the arms, in their order; none are the letters from a on."""

    def means(self, task: Task) -> list[float]:
        """The mean reward of each arm."""
        rng = Random(zlib.crc32(f"bandits:{task.key}".encode()))
        if self.rewards == "gaussian":
            return [rng.gauss(0.0, self.gap) for _ in range(self.arms)]
        best = rng.randrange(self.arms)
        return [0.5 + self.gap / 2 if arm == best else 0.5 - self.gap / 2 for arm in range(self.arms)]

    @property
    def named(self) -> tuple[str, ...]:
        """The names of the arms. Raises `ValueError` for another number of them."""
        names = self.names or tuple(chr(ord("a") + arm) for arm in range(self.arms))
        if len(set(names)) != self.arms:
            raise ValueError(f"{self.arms} arms need as many different names, got {', '.join(names)}")
        return names

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A bandit of which nothing has been played."""
        return Played(self, self.means(task), draw)


class Played(Instance):
    """One episode."""

    def __init__(self, rules: Bandits, means: Sequence[float], draw: Draw) -> None:
        self._rules, self._means, self._draw, self._names = rules, means, draw, rules.named
        self._counts, self._sums = [0] * rules.arms, [0.0] * rules.arms
        self._regret, self._agreed, self._late = 0.0, 0, 0

    def begin(self) -> Observation:
        """The names of the arms and the number of turns."""
        return self._observation(f"{' '.join(self._names)} {self._rules.horizon}\n")

    async def step(self, action: str) -> Outcome:
        """Play an arm."""
        named = action.strip().lower()
        valid = named in self._names
        arm = self._names.index(named) if valid else min(int(self._draw() * self._rules.arms), self._rules.arms - 1)
        if min(self._counts) > 0:
            self._late += 1
            self._agreed += arm == self._oracle()
        reward = self._reward(arm)
        self._counts[arm] += 1
        self._sums[arm] += reward
        self._regret += max(self._means) - self._means[arm]
        written = f"{reward:.0f}" if self._rules.rewards == "bernoulli" else f"{reward:.1f}"
        shown = written if valid else f"({self._names[arm]}) {written}"
        over = sum(self._counts) == self._rules.horizon
        return Outcome(observation=self._observation(f"{shown}\n{self._history()}"), done=over, valid=valid)

    async def solution(self) -> str:
        """The arm of the oracle."""
        return self._names[self._oracle()]

    def verdict(self) -> Verdict:
        """1 for play without regret, 0 for that of uniform play; solved if the best arm was played most."""
        uniform = sum(self._counts) * (max(self._means) - sum(self._means) / len(self._means))
        best = self._counts.index(max(self._counts))
        return Verdict(
            value=1.0 - self._regret / uniform if uniform else 1.0,
            solved=self._means[best] == max(self._means),
            explanation=f"regret {self._regret:.3g}, {uniform:.3g} by uniform play",
        )

    def measures(self) -> Mapping[str, float]:
        """Regret, the share of the best arm, the smallest share times the arms, and of turns the oracle would take."""
        turns = max(sum(self._counts), 1)
        best = self._means.index(max(self._means))
        agreed = {"agreement": self._agreed / self._late} if self._late else {}
        shares = {"best": self._counts[best] / turns, "least": self._rules.arms * min(self._counts) / turns}
        return {"regret": self._regret, **shares, **agreed}

    def _reward(self, arm: int) -> float:
        if self._rules.rewards == "bernoulli":
            return float(self._draw() < self._means[arm])
        uniform = min(max(self._draw(), SMALLEST), 1.0 - SMALLEST)
        return round(NormalDist(self._means[arm], self._rules.gap).inv_cdf(uniform), 1)

    def _bonuses(self) -> list[float]:
        """What the oracle adds to the mean of each arm; infinite for one without a turn."""
        turns = sum(self._counts)
        return [math.sqrt(ALPHA * math.log(turns) / count) if count else math.inf for count in self._counts]

    def _oracle(self) -> int:
        values = [self._mean(arm) + bonus for arm, bonus in enumerate(self._bonuses())]
        return values.index(max(values))

    def _mean(self, arm: int) -> float:
        return self._sums[arm] / self._counts[arm] if self._counts[arm] else 0.0

    def _history(self) -> str:
        """What is shown of earlier turns."""
        if self._rules.history == "raw":
            return ""
        rows = [f"{name} {self._counts[arm]} {self._mean(arm):.2f}" for arm, name in enumerate(self._names)]
        if self._rules.history == "guidance":
            added = [f"{bonus:.2f} {self._mean(arm):.2f}" for arm, bonus in enumerate(self._bonuses())]
            rows = [f"{row} {more}" for row, more in zip(rows, added, strict=True)]
        return "\n".join(rows) + "\n"

    def _observation(self, text: str) -> Observation:
        key = " ".join(f"{count}:{total:g}" for count, total in zip(self._counts, self._sums, strict=True))
        return Observation(text=text, state_key=key, legal=self._names)
