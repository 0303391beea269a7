"""The score of a completion without an end is replaced, not lowered."""

import math

import pytest

from posttrain.components.rewards.ended import Ended
from posttrain.components.rewards.match import Match
from posttrain.types import Task
from tests.components.rewards.judging import judge

REWARD = Ended(of=Match(right=10.0))


@pytest.mark.parametrize(("text", "value"), [("#### 42\n", 10.0), ("#### 41\n", 0.0)])
def test_with_an_end_it_is_the_other_reward(text: str, value: float) -> None:
    assert judge(REWARD, text).value == value


@pytest.mark.parametrize("text", ["#### 42\nand on", "#### 41\nand on", ""])
def test_without_one_it_is_the_penalty_right_or_wrong(text: str) -> None:
    score = judge(REWARD, text, stop_reason="length")
    assert (score.value, score.status) == (-10.0, "wrong")
    assert score.parts["of"].value == (10.0 if "42" in text else 0.0)


def test_a_verifier_that_fails_is_an_error_only_where_its_score_counts() -> None:
    bare = Task(key="bare", prompt="?")
    assert math.isnan(judge(REWARD, "42", bare).value)
    assert judge(REWARD, "42", bare, stop_reason="length").value == -10.0
