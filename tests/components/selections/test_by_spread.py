"""The order of tasks by the spread of their scores, on scores that are written out."""

import pytest

from posttrain.components.rewards.match import Match
from posttrain.components.selections.by_spread import BySpread
from posttrain.types import Task

TASKS = [Task(key=f"t{i}", prompt="p") for i in range(6)]
MEASURED = [0.0, 0.2, None, 0.5, 0.0, 0.2]


def order(selection: BySpread) -> list[str]:
    return [task.key for task in selection.choose(TASKS, MEASURED).tasks]


def test_falling_spread_equal_scores_last_unscored_after_them() -> None:
    assert order(BySpread(reward=Match())) == ["t3", "t1", "t5", "t0", "t4", "t2"]
    assert (
        "2 with equal scores are last, and 1 that could not be scored"
        in BySpread(reward=Match()).choose(TASKS, MEASURED).summary
    )


@pytest.mark.parametrize(("keep", "left"), [(0.5, ["t3", "t1", "t5"]), (0.01, ["t3"])])
def test_the_end_of_the_order_can_be_left_out(keep: float, left: list[str]) -> None:
    assert order(BySpread(reward=Match(), keep=keep)) == left


def test_only_the_first_tasks_are_measured() -> None:
    chosen = BySpread(reward=Match(), first=3).choose(TASKS, MEASURED[:3])
    assert [task.key for task in chosen.tasks] == ["t1", "t0", "t2"]
