"""Scored groups of tasks, and a run in small: what `Curriculum.look` may use, by tables."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.types import Group, Score, Task
from tests.builders import trajectory


def group(of: Task, rewards: Sequence[float]) -> Group:
    return Group(key=of.key, trajectories=tuple(trajectory(reward=r, of=of) for r in rewards))


def failed(of: Task) -> Group:
    return Group(key=of.key, trajectories=(trajectory(of=of).scored(Score(value=np.nan, status="error")),))


class TableProbe:
    """Rewards and scores by the key of a task; counts what is measured."""

    def __init__(
        self,
        rewards: Callable[[Task], Sequence[float]] | None = None,
        scores: Callable[[Task], float] | None = None,
        states: Callable[[Any], Any] | None = None,
    ) -> None:
        self.rewards, self.scores, self.states = rewards, scores, states
        self.asked: list[tuple[str, list[str], Any]] = []

    @property
    def samplers(self) -> dict[str, Any]:
        return {}

    @property
    def held_out(self) -> frozenset[str]:
        return frozenset()

    async def collect(self, tasks: Sequence[Task], n: int | None) -> list[Group]:
        assert self.rewards is not None
        self.asked.append(("collect", [task.key for task in tasks], n))
        return [group(task, self.rewards(task)) for task in tasks]

    async def mlp_inputs(self, role: str, token_ids: Sequence[Any]) -> list[Any]:
        assert self.states is not None
        self.asked.append(("mlp_inputs", [str(len(ids)) for ids in token_ids], role))
        return [self.states(ids) for ids in token_ids]

    async def predict(self, role: str, tasks: Sequence[Task]) -> list[float]:
        assert self.scores is not None
        self.asked.append(("predict", [task.key for task in tasks], role))
        return [self.scores(task) for task in tasks]


def choose(
    curriculum: Curriculum,
    state: State,
    pool: Sequence[Task],
    count: int,
    probe: TableProbe,
    *,
    seed: int = 0,
    step: int,
) -> tuple[State, list[Pick]]:
    """Look, then select."""
    state = asyncio.run(curriculum.look(state, pool, probe, count, seed=0, step=step))
    return curriculum.select(state, pool, count, seed=0, step=step)
