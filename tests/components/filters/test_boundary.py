"""Right with a hint where the plain rollout is wrong."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.filters.boundary import Boundary
from posttrain.components.rollouts import Inserted
from posttrain.types import Group, Segment, Task, Trajectory
from tests.builders import score


def rollout(right: bool, insertions: int, executed: int = 1, text: str = "a\nb\n#### 1") -> Trajectory:
    return Trajectory(
        task=Task(key="t", prompt="q"),
        segments=(Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text),),
        stop_reason="stop",
        score=score(float(right)),
        facts=(Inserted(insertions=insertions, executed=executed),),
    )


def kept(group: list[Trajectory], **settings: object) -> list[int]:
    numbered = [replace(t, sample=i) for i, t in enumerate(group)]
    _, groups, dropped = Boundary(**settings)({}, [Group(trajectories=tuple(numbered))])  # type: ignore[arg-type]
    places = [t.sample for g in groups for t in g]
    assert sorted([*places, *(t.sample for d in dropped for t in d.group)]) == list(range(len(group)))
    return places


HARD = [rollout(False, 0), rollout(True, 1), rollout(False, 1), rollout(True, 1, executed=0)]
EASY = [rollout(True, 0), rollout(True, 1)]


@pytest.mark.parametrize(("keep", "hard", "easy"), [("boundary", [1], []), ("hinted", [1], [1]), ("plain", [], [0])])
def test_what_is_kept(keep: str, hard: list[int], easy: list[int]) -> None:
    assert kept(HARD, keep=keep) == hard and kept(EASY, keep=keep) == easy


def test_repetition_is_dropped_and_calls_may_be_waived() -> None:
    again = rollout(True, 1, text="a\na \n\n\n\na\n#### 1")
    assert kept([rollout(False, 0), again]) == [] and kept([rollout(False, 0), again], repeats=4) == [1]
    assert kept(HARD, executed=0) == [1, 3]


def test_a_group_without_hints_keeps_what_is_right() -> None:
    assert kept([rollout(True, 0, executed=0), rollout(False, 0), rollout(True, 0)]) == [0, 2]
