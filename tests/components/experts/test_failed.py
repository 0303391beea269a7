import json
from collections.abc import Sequence
from typing import Literal

import pytest

from posttrain.components.experts.failed import Failed
from posttrain.types import Group, Task
from tests.builders import trajectory

POOL = [Task(key=key, prompt="?", demonstrations=(f"of {key}",)) for key in "abcdefgh"]
POOL.append(Task(key="bare", prompt="?"))


def groups(**rewards: Sequence[float]) -> list[Group]:
    """A group of rollouts with these rewards, by the key of the task."""
    of = {task.key: task for task in POOL}
    return [
        Group(key=key, trajectories=tuple(trajectory(reward=r, of=of[key]) for r in own))
        for key, own in rewards.items()
    ]


def played(experts: Failed, steps: Sequence[list[Group]]) -> tuple[list[list[str]], list[str]]:
    """Keys of what is learned in each step, and of what waits at the end."""
    state, taken = experts.start(), []
    for step in steps:
        state, shown = experts.choose(json.loads(json.dumps(state)), POOL, step, seed=0)
        taken.append([task.key for task, _ in shown])
        assert all(text == f"of {task.key}" for task, text in shown)
    return taken, list(state["waiting"])


def test_only_where_every_reward_is_that_of_failure() -> None:
    mixed = groups(a=[0, 0], b=[0, 1], c=[-1, -1], d=[-1, 0], bare=[0, 0])
    assert played(Failed(batch=9), [mixed]) == ([[]], ["a"])
    assert played(Failed(batch=9, fail=-1.0), [mixed]) == ([[]], ["c"])


def test_an_update_when_there_are_enough_and_the_newest_first() -> None:
    steps = [groups(a=[0], b=[0]), groups(c=[0]), groups(d=[0]), groups(e=[0], f=[0])]
    assert played(Failed(batch=3), steps) == ([[], ["c", "a", "b"], [], ["e", "f", "d"]], [])


@pytest.mark.parametrize(("first", "waiting"), [("newest", "a"), ("oldest", "g")])
def test_what_waits_for_ever(first: Literal["newest", "oldest"], waiting: str) -> None:
    """Three tasks fail in the first step and two in each later one, and two are learned from in each."""
    steps = [groups(c=[0], b=[0], a=[0]), groups(d=[0], e=[0]), groups(f=[0], g=[0])]
    taken, left = played(Failed(batch=2, first=first), steps)
    assert left == [waiting]
    assert [len(keys) for keys in taken] == [2, 2, 2]


def test_a_task_may_join_again_and_an_empty_buffer_gives_nothing() -> None:
    again = [groups(a=[0]), groups(a=[0]), [], groups(b=[0])]
    assert played(Failed(batch=2), again) == ([[], ["a", "a"], [], []], ["b"])
