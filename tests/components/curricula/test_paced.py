"""Difficulty is the history's mean minus the task's own."""

import asyncio
from collections.abc import Sequence

import pytest

from posttrain.components.curricula.paced import Paced
from posttrain.types import Group, Task
from tests.builders import trajectory

POOL = [Task(key=key, prompt="") for key in "ab"]


def visit(key: str, *rewards: float) -> Group:
    of = Task(key=key, prompt="")
    return Group(key=key, trajectories=tuple(trajectory(reward=r, of=of) for r in rewards))


class Probe:
    """Rewards of 1 for b and of 0 for a."""

    async def collect(self, tasks: Sequence[Task], n: int | None) -> list[Group]:
        assert n == 4
        return [visit(task.key, *[float(task.key == "b")] * 4) for task in tasks]


def test_by_the_last_visit() -> None:
    """Means 0.25 and 1 have the mean 0.625: Delta is 0.375 and -0.375."""
    curriculum = Paced(probe=None)
    state = curriculum.observe(curriculum.start(), [visit("a", 1, 0, 0, 0), visit("b", 1, 1)])
    _, picks = curriculum.select(state, POOL, 2, seed=0, step=1)
    found = {pick.task.key: (pick.task.fields["delta"], pick.reason) for pick in picks}
    assert found == {"a": (0.375, "hard"), "b": (-0.375, "easy")}


def test_unknown_tasks_stay_as_they_are() -> None:
    curriculum = Paced(probe=None)
    _, picks = curriculum.select(curriculum.start(), POOL, 2, seed=0, step=0)
    assert {id(pick.task) for pick in picks} == set(map(id, POOL))


def test_by_a_probe_of_the_tasks_that_are_chosen_next() -> None:
    curriculum = Paced()
    state = asyncio.run(curriculum.look(curriculum.start(), POOL, Probe(), 2, seed=0, step=0))  # type: ignore[arg-type]
    _, picks = curriculum.select(state, POOL, 2, seed=0, step=0)
    assert {pick.task.key: pick.weight for pick in picks} == {"a": 0.5, "b": -0.5}
    assert curriculum.observe(state, [visit("a", 1)]) == state, "adjusted groups are not in the history"


def test_old_means_leave_the_history() -> None:
    """Of 0, 1 and 1 the last two stay: a task with mean 0 is at 1."""
    curriculum, state = Paced(probe=None, window=2), Paced().start()
    for key, reward in (("a", 0.0), ("b", 1.0), ("b", 1.0)):
        state = curriculum.observe(state, [visit(key, reward)])
    assert state["history"] == [1.0, 1.0]
    _, picks = curriculum.select(state, POOL, 2, seed=0, step=3)
    assert {pick.task.key: pick.weight for pick in picks} == {"a": pytest.approx(1.0), "b": pytest.approx(0.0)}
