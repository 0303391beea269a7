from math import isnan

import pytest

from posttrain.components.rewards.countdown import Countdown
from posttrain.types import Task
from tests.components.rewards.judging import judge

GAME = Task(key="game", prompt="Make 24 out of 2, 3 and 4.", fields={"numbers": [2, 3, 4], "target": 24})


@pytest.mark.parametrize(
    "text",
    [
        "2*3*4",
        "<answer>(4 * 3) * 2</answer>",
        "I try.\n#### 2 × 3 × 4",
        r"\boxed{2*3*4 = 24}",
        "The answer is 4*(3*2).",
    ],
)
def test_a_solution(text: str) -> None:
    score = judge(Countdown(), text, GAME)
    assert (score.value, score.status) == (1.0, "ok"), score.explanation


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2+3+4", "'2+3+4' (by last_line) is 9, not 24"),
        ("24", "uses [24], given are [2, 3, 4], each of them once"),
        ("2*3*4*1", "uses [2, 3, 4, 1]"),
        ("2*3*4+2-2", "uses [2, 3, 4, 2, 2]"),
        ("3*4/(2-2)", "uses"),
        ("24 = 2*3*4", "uses [24]"),
        ("2*3*4*", "is no expression"),
        ("two times twelve", "is no expression"),
        ("__import__('os')", "is no expression"),
    ],
)
def test_no_solution(text: str, why: str) -> None:
    score = judge(Countdown(), text, GAME)
    assert (score.value, score.status) == (0.0, "wrong")
    assert why in score.explanation


def test_numbers_may_be_left_over() -> None:
    game = Task(key="game", prompt="Make 6 out of 2, 3 and 4.", fields={"numbers": [2, 3, 4], "target": 6})
    assert judge(Countdown(), "2*3", game).status == "wrong"
    assert judge(Countdown(use_all=False), "2*3", game).status == "ok"
    assert judge(Countdown(use_all=False), "2+2+2", game).status == "wrong"


def test_division_is_exact_and_by_zero_is_wrong() -> None:
    game = Task(key="game", prompt="Make 8.", fields={"numbers": [8, 3, 8, 3], "target": 24})
    assert judge(Countdown(), "8/(3-8/3)", game).status == "ok"
    assert "divides by zero" in judge(Countdown(), "8/(3-3)*8", game).explanation


def test_nothing_found() -> None:
    score = judge(Countdown(missing=-1.0, extract=("boxed",)), "2*3*4", GAME)
    assert (score.value, score.status, score.answer) == (-1.0, "wrong", None)


@pytest.mark.parametrize(
    "fields", [{}, {"numbers": [1, 2]}, {"numbers": "12", "target": 3}, {"numbers": [1.5], "target": 3}]
)
def test_a_task_of_another_kind_is_an_error(fields: dict[str, object]) -> None:
    score = judge(Countdown(), "2*3*4", Task(key="other", prompt="What?", fields=fields))
    assert score.status == "error" and isnan(score.value)
    assert "task 'other' is no countdown task" in score.explanation
