"""Words of the reference in the answer, and the format, by hand."""

from typing import Any

import pytest

from posttrain.components.rewards.token_recall import TokenRecall, alike, is_whole
from posttrain.types import Task
from tests.components.rewards.judging import attempt, score_all

TASK = Task(key="a", prompt="q", answer="The old town of Ulm")


def value(text: str, task: Task = TASK, **settings: Any) -> float:
    [score] = score_all(TokenRecall(**settings), attempt(text, task))
    return score.value


def test_measures_by_hand() -> None:
    """Reference old, town, of, ulm; answer ulm, ulm, old: 2 of 4 words; F1 4 / 7; not equal."""
    assert alike("Ulm, Ulm old", str(TASK.answer), "recall") == 0.5
    assert alike("Ulm, Ulm old", str(TASK.answer), "f1") == pytest.approx(4 / 7)
    assert alike("an old town of ulm!", str(TASK.answer), "exact") == 1.0
    assert alike("x", "", "recall") == alike("", "", "exact") == alike("", "ulm", "f1") == 0.0


def test_recall_is_stuffed_and_f1_is_not() -> None:
    long = "ulm old town of rome york kesh tarn vik wells a b c"
    assert alike(long, str(TASK.answer), "recall") == 1.0 and alike(long, str(TASK.answer), "f1") == pytest.approx(
        8 / 16
    )


@pytest.mark.parametrize(
    "text", ["<answer>x</answer>", "<think>t</think><answer> </answer>", "<think>t</think><answer>x</answer> more",
             "<think>t</think><answer>x</answer><answer>y</answer>", "<think>t</think><answer>x", "x"]
)  # fmt: skip
def test_broken_formats(text: str) -> None:
    assert not is_whole(text)


def test_format_and_answer_add_up() -> None:
    whole, broken = "<think>t</think><answer>Ulm</answer>", "<answer>Ulm</answer>"
    assert value(whole) == pytest.approx(0.5 + 0.25) and value(broken) == pytest.approx(0.25)
    assert value(broken, gate=True) == 0.0 and value(whole, gate=True) == pytest.approx(0.75)
    assert value("<think>t</think><answer>old town of Ulm</answer>", measure="exact") == 1.5
    listed = Task(key="a", prompt="q", answer="x", fields={"answers": ["York", "Ulm"]})
    assert value(whole, listed) == 1.5
