"""The whole set of solutions in any order, and what is not it."""

import math

import pytest

from posttrain.components.rewards.solution_set import SolutionSet
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import judge

TASK = Task(key="t", prompt="Solve", fields={"solutions": ["5+5=10", "6+6=12"]})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("so\n#### 5+5=10; 6+6=12", 1.0),
        ("#### 6+6 = 12;5+5=10; 5+5=10", 1.0),
        ("#### 5+5=10\n", 0.0),
        ("#### 5+5=10; 6+6=12; 7+7=14", 0.0),
        ("#### 5+5=10; 6+6=12\n#### 5+5=10", 0.0),
        ("5+5=10; 6+6=12", 0.0),
        ("####", 0.0),
        ("", 0.0),
        ("#### ;;", 0.0),
    ],
)
def test_missing_and_additional_ones_score_nothing(text: str, value: float) -> None:
    score = judge(SolutionSet(), text, TASK)
    assert score.value == value and score.status == ("ok" if value else "wrong")


def test_a_list_that_was_cut_is_not_a_list() -> None:
    assert judge(SolutionSet(), "#### 5+5=10; 6+6=12", TASK, stop_reason="length").value == 0.0


def test_one_solution_is_enough_for_the_other_reward() -> None:
    one = SolutionSet(need="one")
    assert judge(one, "#### 5+5=10", TASK).value == 1.0 and judge(one, "#### 5+5=10; 9+9=9", TASK).value == 1.0
    assert judge(one, "#### 7+7=14", TASK).value == 0.0


def test_a_task_without_solutions() -> None:
    bare = Task(key="t", prompt="Solve", answer="5")
    with pytest.raises(UserError, match="has no list of solutions in the field 'solutions'"):
        SolutionSet().check([bare])
    score = judge(SolutionSet(), "#### 5", bare)
    assert score.status == "error" and math.isnan(score.value)
