"""The first level that a completion fails at."""

import pytest

from posttrain.components.rewards.format import Format
from posttrain.components.rewards.levels import Levels
from posttrain.components.rewards.match import Match
from posttrain.types import Task
from tests.components.rewards.judging import judge

REWARD = Levels(correct=Match(extract=("answer_tag",)), form=Format())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<think>6*7</think><answer>42</answer>", 2.0),
        ("<think>6*7</think><answer>41</answer>", -0.5),
        ("<answer>42</answer>", -2.0),
        ("<think>6*7</think></think><answer>42</answer>", -2.0),
        ("", -2.0),
    ],
)
def test_with_a_form(text: str, value: float) -> None:
    score = judge(REWARD, text)
    assert (score.value, score.status) == (value, "ok" if value == 2.0 else "wrong")
    assert set(score.parts) == {"correct", "form"}


@pytest.mark.parametrize(("text", "value"), [("#### 42", 2.0), ("#### 41", -0.5), ("no mark", -1.0)])
def test_without_a_form(text: str, value: float) -> None:
    assert judge(Levels(correct=Match(extract=("hashes",))), text).value == value


def test_an_error_stays_one() -> None:
    assert judge(REWARD, "<think>6*7</think><answer>42</answer>", Task(key="bare", prompt="?")).status == "error"
