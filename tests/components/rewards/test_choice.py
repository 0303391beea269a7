"""The letter of an option, alone; hedges have nothing."""

import pytest

from posttrain.components.rewards.choice import Choice
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import judge

TASK = Task(key="t", prompt="Which one?", answer="B", fields={"options": ["aspirin", "zinc", "salt", "iron"]})


@pytest.mark.parametrize("text", ["B", "b", "(B)", r"\text{B}", "B.", "B:", r"\textbf{(B)}.", " [B] "])
def test_right_forms(text: str) -> None:
    found = judge(Choice(), rf"so \boxed{{{text}}}", TASK)
    assert (found.value, found.status, found.answer) == (1.0, "ok", "B")


@pytest.mark.parametrize(
    "text", ["A", "B. zinc", "A or B", "B or A", "AB", "A, B, C, D", "ABCD", "BB", "zinc", "", "E", "B..", "not B"]
)
def test_cheats_and_mistakes_have_nothing(text: str) -> None:
    found = judge(Choice(), rf"\boxed{{{text}}}", TASK)
    assert (found.value, found.status) == (0.0, "wrong")


def test_the_last_box_counts_and_a_letter_outside_does_not() -> None:
    assert judge(Choice(), r"\boxed{A} no, \boxed{B}", TASK).value == 1.0
    assert judge(Choice(), r"\boxed{B} no, \boxed{A}", TASK).value == 0.0
    assert judge(Choice(), "B", TASK).value == 0.0 and judge(Choice(extract=("last_line",)), "B", TASK).value == 1.0


def test_options_by_letter_and_answers_by_text() -> None:
    mapped = Task(key="t", prompt="?", answer="zinc", fields={"options": {"a": "salt", "b": "zinc"}})
    assert judge(Choice(), r"\boxed{B}", mapped).value == 1.0


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Task(key="t", prompt="?", answer="A"), "column 'options'"),
        (Task(key="t", prompt="?", answer="A", fields={"options": ["one"]}), "column 'options'"),
        (Task(key="t", prompt="?", answer="E", fields={"options": ["one", "two"]}), "none of its options A, B"),
        (Task(key="t", prompt="?", answer="same", fields={"options": ["same", "same"]}), "none of its options"),
    ],
)
def test_bad_rows_are_refused_before_anything_is_sampled(task: Task, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Choice().check([TASK, task])
    assert judge(Choice(), r"\boxed{A}", task).status == "error"
