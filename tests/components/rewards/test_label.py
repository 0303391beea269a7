"""Labels: exact, contained, and the empty answer that is in every label."""

import pytest

from posttrain.components.rewards.label import Label
from posttrain.types import Task
from tests.components.rewards.judging import judge

TASK = Task(key="t", prompt="<image>What is it?", answer="red_fox")


@pytest.mark.parametrize(
    ("answer", "exact", "contained"),
    [
        ("red fox", 1, 1),
        ("Red_Fox", 1, 1),
        ("the red fox", 0, 1),
        ("fox", 0, 1),
        ("wolf", 0, 0),
        ("_", 0, 0),
        ("", 0, 0),
    ],
)
def test_by_hand(answer: str, exact: int, contained: int) -> None:
    text = f"<think>a</think><answer>{answer}</answer>"
    assert judge(Label(), text, TASK).value == exact
    assert judge(Label(match="containment"), text, TASK).value == contained


def test_the_empty_answer_is_rewarded_only_where_that_is_asked_for() -> None:
    for text in ("<answer></answer>", "<answer>_</answer>"):
        reward = Label(match="containment")
        assert judge(reward, text, TASK).value == 0
        hacked = Label(match="containment", empty=True)
        assert judge(hacked, text, TASK).value == 1
        assert judge(Label(empty=True), text, TASK).value == 0


def test_a_task_without_a_label_cannot_be_scored() -> None:
    assert judge(Label(), "red", Task(key="t", prompt="?")).status == "error"
