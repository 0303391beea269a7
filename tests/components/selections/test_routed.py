"""Both sides of a routing, on measurements that are written out."""

import pytest
from pydantic import ValidationError

from posttrain.components.rewards.match import Match
from posttrain.components.selections.routed import Routed
from posttrain.types import Task

TASKS = [Task(key=f"t{i}", prompt="p", demonstrations=("given",)) for i in range(4)]
MEASURED = ["own words", "", None, "more"]


def test_both_sides_divide_what_could_be_scored() -> None:
    right = Routed(reward=Match()).choose(TASKS, MEASURED)
    wrong = Routed(reward=Match(), keep="wrong").choose(TASKS, MEASURED)
    assert [(t.key, t.demonstrations) for t in right.tasks] == [("t0", ("own words",)), ("t3", ("more",))]
    assert [t.key for t in wrong.tasks] == ["t1"] and wrong.tasks[0] == TASKS[1]
    assert right.summary.startswith("the role 'router' answers 2 of 4 tasks rightly and 1 wrongly, 1 could not")


def test_several_greedy_answers_are_refused() -> None:
    with pytest.raises(ValidationError, match="temperature above 0"):
        Routed(reward=Match(), n=2)
    assert Routed(reward=Match(), n=2, temperature=1.0).writes == {"demonstrations"}
    assert not Routed(reward=Match(), keep="wrong").writes and Routed(reward=Match()).roles == {"router"}
