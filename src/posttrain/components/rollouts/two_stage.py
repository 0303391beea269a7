"""DARS: a first few attempts say how hard a task is, and harder ones get more attempts.

Source: Yang et al. 2025 (Depth-Breadth Synergy), arXiv:2508.13755, and its released code. With u the mean score of the
first N attempts and no division by the group's deviation, the advantages of N attempts come to N S(u) in size, with
S(u) = 2 u (1 - u) an attempt: most at u = 1/2, N / 2 altogether, and little where a task is hard. The second stage
samples as many more as bring that up to a target:

    more = min(ceil((target - N S) / S), n_max - N),    target = N / 2 (equal)  or  2 (1 - u) N / 2 (hard)

Where advantages are divided by the deviation, S(u) = 2 sqrt(u (1 - u)) and N / 2 becomes N. A task that nobody solved
is taken for one of u = 1 / (2 N); one of u >= 1/2 gets no more attempts. u is what the first stage saw: the mean of all
attempts together, which advantages are taken from, is another.

Differs: an attempt whose judgement failed has no part in u; where all failed, nothing more is sampled.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

from pydantic import PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Judge, Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Fact, Group, Task, value_of

NONE_RIGHT = 1e-6
"""A mean score up to this is that of a task that nobody solved."""
ROUNDING = 1e-9
"""What a number of attempts may be above a whole one through rounding alone."""


@dataclass(frozen=True, kw_only=True)
class Stages(Fact):
    """What the first stage found, and what the second one did."""

    first_stage: float
    """Mean reward of the first stage."""
    more_attempts: int
    """Rollouts of the second stage."""


@frozen
class TwoStage(Rollout):
    """`n` completions, then more where few of them were right; all of them are one group. Scores are in [0, 1]."""

    n: PositiveInt = 8
    """Completions of the first stage, N."""
    schedule: Literal["equal", "hard"] = "equal"
    """What the sizes of a task's advantages add up to: as much as those of a task that is solved half of the time, or
    more the harder it is (up to twice as much)."""
    n_max: PositiveInt = 32
    """Most completions of both stages together (the authors' scripts: 32 for ``equal``, 64 for ``hard``)."""
    deviation: bool = False
    """Whether advantages are divided by the group's deviation, so that an attempt at a hard task counts more."""
    sampling: Sampling = Sampling()
    """How each is drawn."""
    role: str = "policy"
    """The model that writes, and whose tokens are trained."""

    @model_validator(mode="after")
    def check_most(self) -> Self:
        """The first stage is a part of both."""
        if self.n_max < self.n:
            context = {"n": self.n, "n_max": self.n_max}
            raise PydanticCustomError("n_max", "n_max counts the first stage too: {n_max} is less than n, {n}", context)
        return self

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    async def collect_judged(self, task: Task, samplers: Mapping[str, Sampler], judge: Judge) -> list[Group]:
        """One group: the attempts of both stages, judged. What the first stage found is among their facts."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        first = await judge(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        values = [value_of(t) for t in first if t.score is not None and t.score.status != "error"]
        if not values:
            return [first]
        if min(values) < 0 or max(values) > 1:
            raise UserError(
                f"task {task.key}: a reward of {min(values) if min(values) < 0 else max(values):g}, but the two_stage "
                "rollout takes the mean reward for the share of right attempts; give rewards from 0 to 1"
            )
        share = sum(values) / len(values)
        more = self.more(share)
        attempts = first.trajectories
        if more:
            completions = await sampler.sample(prompt.token_ids, more, self.sampling, prompt.vectors)
            fresh = answers(task, prompt, completions, self.role, first=self.n)
            attempts += (await judge(Group(key=task.key, trajectories=fresh))).trajectories
        stages = Stages(first_stage=share, more_attempts=more)
        return [replace(first, trajectories=tuple(replace(t, facts=(*t.facts, stages)) for t in attempts))]

    def more(self, share: float) -> int:
        """Attempts of the second stage, for a mean score in the first one."""
        if share >= 0.5:
            return 0
        u = share if share > NONE_RIGHT else 0.5 / self.n
        size = 2.0 * (math.sqrt(u * (1.0 - u)) if self.deviation else u * (1.0 - u))
        target = self.n * (1.0 if self.deviation else 0.5) * (2.0 * (1.0 - u) if self.schedule == "hard" else 1.0)
        return min(math.ceil((target - self.n * size) / size - ROUNDING), self.n_max - self.n)
