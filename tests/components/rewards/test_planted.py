import asyncio

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.planted import Planted
from posttrain.types import Group, Score, Segment, Task, Trajectory


def scored(text: str, **fields: object) -> Score:
    segment = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text)
    task = Task(key="t", prompt="?", fields=fields)
    group = Group(key="t", trajectories=(Trajectory(task=task, segments=(segment,), stop_reason="stop"),))
    [score] = asyncio.run(Planted().score(group, RewardContext()))
    return score


@pytest.mark.parametrize(("text", "value", "status"), [("cab", 0.7, "ok"), ("xx", 0.0, "wrong"), (" ccaxb", 0.5, "ok")])
def test_letters_that_are_left(text: str, value: float, status: str) -> None:
    found = scored(text, planted="cab", horizon=10)
    assert (found.value, found.status) == (pytest.approx(value), status)


def test_other_tasks_are_errors() -> None:
    assert "the fields planted (a text) and horizon" in (scored("cab").explanation or "")
    assert scored("cab", planted="", horizon=3).status == "error"
