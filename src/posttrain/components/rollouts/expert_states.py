"""Rollouts from the start, and from states of an expert who fails; what leads to a solved state is imitated.

A task may have an episode of an expert (`Task.episodes`). It is played again; if it fails, up to `states` of its
states, evenly spaced from the start, are branched from: the expert's turns up to there are given, and the policy goes
on. A state is solved if a rollout from it is; the start, if one of the `n` rollouts is. Between neighbouring states the
expert's turns are

    unsolved -> solved     useful: trained
    solved -> unsolved     harmful: not trained
    solved -> solved       neutral: not trained
    unsolved -> unsolved   unknown: trained before the first solved state, which certifies them; else not

For each solved state one rollout is returned, with these masks on the expert's turns and its own turns trained, in a
group behind that of the start. If the start is solved, the ordinary rollouts are enough, and no other is sampled.

Source: Exploring Expert Failures, arXiv:2504.13145. The rule is a reading of notes on it: turns between an earlier
solved and a later unsolved state are harmful. With ``prefix=none`` only own turns are trained. M = 5 is from a build by
others. An expert that recovers after a harmful turn keeps the recovery, unlike in a rule that masks all that follows.
"""

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import pairwise
from math import ceil
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Environment, EnvironmentFailed
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._continued import continued, record_of
from posttrain.components.rollouts._segments import sampler_of
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task, Trajectory


@frozen
class ExpertStates(Rollout):
    """Samples from the start, and from states of failed experts."""

    environment: Environment
    """The environment, of which each rollout has a new instance."""
    n: PositiveInt = 8
    """Rollouts from the start."""
    max_turns: PositiveInt = 8
    """Most turns of a rollout, those of the expert included."""
    sampling: Sampling = Sampling()
    """How each turn is sampled; `max_tokens` limits one turn."""
    role: str = "policy"
    """The model that acts and is trained."""
    states: Annotated[int, Field(ge=0, le=100)] = 5
    """M: most states of an expert's episode, the start included; 0 and 1 branch from none."""
    prefix: Literal["by_segment", "none"] = "by_segment"
    """Which turns of the expert are trained: as above, or none."""
    branches: Annotated[int, Field(ge=1, le=100)] = 1
    """Rollouts from each state."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be tasks of the environment."""
        self.environment.check_alone(tasks)

    def held_out(self, n: int, sampling: Sampling) -> "ExpertStates":
        """The same environment and number of turns, from the start."""
        return replace(self, n=n, states=0, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """The group from the start."""
        return await self._turns.collect(task, samplers)

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """The group from the start; if none of it is solved, one from states of a failed expert too."""
        (start,) = [await scorer(group) for group in await self.collect(task, samplers)]
        sampler = sampler_of(self.role, samplers)
        if any(t.solved for t in start) or not (expert := await self._failed_expert(task, sampler)):
            return [start]
        places = state_places(len(expert), self.states)[1:]
        tried = [(place, i) for place in places for i in range(self.branches)]
        rollouts = [
            self._turns.rollout(task, sampler.bind("state", place, i), self.n + number, expert[:place])
            for number, (place, i) in enumerate(tried)
        ]
        if not rollouts:
            return [start]
        scored = await scorer(Group(key=task.key, trajectories=tuple(await asyncio.gather(*rollouts))))
        first: dict[int, Trajectory] = {}
        for (place, _), trajectory in zip(tried, scored, strict=True):
            if trajectory.solved:
                first.setdefault(place, trajectory)
        masks = trained_segments([False, *(place in first for place in places)])
        spans = list(pairwise([0, *places]))
        turns = {turn for (a, b), mask in zip(spans, masks, strict=True) if mask for turn in range(a, b)}
        chosen = tuple(_masked(t, turns if self.prefix == "by_segment" else frozenset()) for t in first.values())
        return [start, Group(key=f"{task.key}/states", trajectories=chosen)] if chosen else [start]

    @property
    def _turns(self) -> Turns:
        """Rollouts of several turns."""
        return Turns(
            environment=self.environment, n=self.n, max_turns=self.max_turns, sampling=self.sampling, role=self.role
        )

    async def _failed_expert(self, task: Task, sampler: Sampler) -> list[str]:
        """The turns of the task's expert, if it fails when it is played again; none otherwise."""
        return await continued(sampler.bind("expert"), lambda sampler: self._failed(task, sampler))

    async def _failed(self, task: Task, sampler: Sampler) -> list[str]:
        if self.states < 2 or not task.episodes:
            return []
        texts = [part.text for part in task.episodes[0] if part.actor == "policy"][: self.max_turns]
        try:
            async with self.environment.open(task, sampler.uniform, record_of(sampler)) as instance:
                instance.begin()
                for place, text in enumerate(texts):
                    if (await instance.step(text)).done:
                        texts = texts[: place + 1]
                await instance.finish()
                verdict = instance.verdict()
        except EnvironmentFailed:
            return []
        return texts if verdict is not None and not verdict.solved else []


def state_places(turns: int, states: int) -> list[int]:
    """Numbers of turns before each state: 0, l, 2l, ..., at most `states`, before the last turn."""
    if not turns or not states:
        return []
    return list(range(0, turns, max(1, ceil(turns / states))))[:states]


def trained_segments(solved: Sequence[bool]) -> list[bool]:
    """Whether the expert's turns between each state and the next are trained, from which states are solved."""
    first = list(solved).index(True) if True in solved else 0
    return [not before and (after or i < first) for i, (before, after) in enumerate(pairwise(solved))]


def _masked(trajectory: Trajectory, turns: AbstractSet[int]) -> Trajectory:
    """The rollout with only these turns of the expert trained."""
    segments = tuple(
        replace(s, trained=s.turn in turns) if s.actor == "demonstration" else s for s in trajectory.segments
    )
    return replace(trajectory, segments=segments)
