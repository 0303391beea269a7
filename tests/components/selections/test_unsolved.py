"""Which tasks are kept, on shares that are written out."""

import pytest

from posttrain.components.rewards.match import Match
from posttrain.components.selections.unsolved import Unsolved
from posttrain.types import Task

TASKS = [Task(key=f"t{i}", prompt="p") for i in range(4)]
MEASURED = [1.0, 0.75, 0.0, None]


@pytest.mark.parametrize(("below", "kept"), [(1.0, ["t1", "t2", "t3"]), (0.75, ["t2", "t3"])])
def test_tasks_below_the_bound_and_those_without_a_score_stay(below: float, kept: list[str]) -> None:
    chosen = Unsolved(reward=Match(), below=below).choose(TASKS, MEASURED)
    assert [task.key for task in chosen.tasks] == kept
    assert chosen.summary.startswith(f"{len(kept)} of 4 tasks are kept")


def test_a_pool_that_is_solved_leaves_nothing() -> None:
    assert not Unsolved(reward=Match()).choose(TASKS[:1], [1.0]).tasks
