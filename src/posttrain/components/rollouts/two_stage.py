"""DARS: the scores of a first stage estimate the difficulty of a task, and harder tasks get more rollouts.

Source: Yang et al. 2025 (Depth-Breadth Synergy), arXiv:2508.13755, and its released code. With u the mean score of the
first N rollouts, and without division by the group's standard deviation, the absolute advantages of N rollouts sum to
N S(u), with S(u) = 2 u (1 - u) per rollout: the maximum is N / 2 at u = 1/2, and hard tasks have little. The second
stage samples as many more as needed to reach a target:

    more = min(ceil((target - N S) / S), n_max - N),    target = N / 2 (equal)  or  2 (1 - u) N / 2 (hard)

Where advantages are divided by the standard deviation, S(u) = 2 sqrt(u (1 - u)) and N / 2 becomes N. A task without a
correct rollout is taken to have u = 1 / (2 N); one with u >= 1/2 gets no more rollouts. u is the mean of the first
stage; the baseline of advantages is the mean of both stages.

Differs: a rollout that could not be scored does not count in u; if all fail, nothing more is sampled.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Fact, Group, Task, value_of

NONE_RIGHT = 1e-6
"""A mean score up to this counts as 0: no correct rollout."""
ROUNDING = 1e-9
"""Tolerance for rounding errors when a number of rollouts is rounded up."""


@dataclass(frozen=True, kw_only=True)
class Stages(Fact):
    """Result of the first stage, and size of the second one."""

    first_stage: float
    """Mean reward of the first stage."""
    more_rollouts: int
    """Number of rollouts of the second stage."""


@frozen
class TwoStage(Rollout):
    """Samples `n` completions, then more if few of them are correct, as one group. Scores must be in [0, 1]."""

    RENAMED: ClassVar = {"deviation": "divide_by_std"}

    n: PositiveInt = 8
    """Completions of the first stage, N."""
    schedule: Literal["equal", "hard"] = "equal"
    """Target of the sum of a task's absolute advantages: ``equal`` is that of a task with u = 1/2, ``hard`` up to twice
    as much for harder tasks."""
    n_max: PositiveInt = 32
    """Most completions of both stages together (the authors' scripts: 32 for ``equal``, 64 for ``hard``)."""
    divide_by_std: bool = False
    """Whether the recipe divides advantages by the group's standard deviation, which changes the target."""
    sampling: Sampling = Sampling()
    """How each completion is sampled."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @model_validator(mode="after")
    def check_most(self) -> Self:
        """Refuse an `n_max` below `n`."""
        if self.n_max < self.n:
            context = {"n": self.n, "n_max": self.n_max}
            raise PydanticCustomError("n_max", "n_max counts the first stage too: {n_max} is less than n, {n}", context)
        return self

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group: the scored rollouts of both stages, with the fact `Stages`."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        first = await scorer(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        values = [value_of(t) for t in first if t.score is not None and t.score.status != "error"]
        if not values:
            return [first]
        if min(values) < 0 or max(values) > 1:
            raise UserError(
                f"task {task.key}: a reward of {min(values) if min(values) < 0 else max(values):g}, but the two_stage "
                "rollout takes the mean reward for the share of correct rollouts; give rewards from 0 to 1"
            )
        share = sum(values) / len(values)
        more = self.more(share)
        rollouts = first.trajectories
        if more:
            completions = await sampler.sample(prompt.token_ids, more, self.sampling, prompt.vectors)
            fresh = answers(task, prompt, completions, self.role, first=self.n)
            rollouts += (await scorer(Group(key=task.key, trajectories=fresh))).trajectories
        stages = Stages(first_stage=share, more_rollouts=more)
        return [replace(first, trajectories=tuple(replace(t, facts=(*t.facts, stages)) for t in rollouts))]

    def more(self, share: float) -> int:
        """Number of rollouts of the second stage, for the mean score of the first one."""
        if share >= 0.5:
            return 0
        u = share if share > NONE_RIGHT else 0.5 / self.n
        size = 2.0 * (math.sqrt(u * (1.0 - u)) if self.divide_by_std else u * (1.0 - u))
        target = self.n * (1.0 if self.divide_by_std else 0.5) * (2.0 * (1.0 - u) if self.schedule == "hard" else 1.0)
        return min(math.ceil((target - self.n * size) / size - ROUNDING), self.n_max - self.n)
