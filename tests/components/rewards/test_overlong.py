"""A penalty that rises over the last tokens before the limit, on correct and incorrect completions alike."""

import math

import pytest
from pydantic import ValidationError

from posttrain.components.rewards.match import Match
from posttrain.components.rewards.overlong import Overlong
from posttrain.types import Task
from tests.components.rewards.judging import judge

REWARD = Overlong(of=Match(), limit=10, buffer=4)


def text(words: int, answer: int = 42) -> str:
    """A completion of this many tokens that ends with an answer."""
    return f"{'so ' * (words - 2)}#### {answer}"


@pytest.mark.parametrize(("words", "value"), [(6, 1.0), (7, 0.75), (8, 0.5), (10, 0.0), (14, 0.0)])
def test_the_penalty_by_length(words: int, value: float) -> None:
    """limit - buffer is 6: nothing up to 6 tokens, a quarter for each further one, 1 from 10 on."""
    score = judge(REWARD, text(words))
    assert (score.value, score.status, score.parts["of"].value) == (value, "ok", 1.0)


def test_a_wrong_answer_is_penalized_too() -> None:
    score = judge(REWARD, text(8, 41))
    assert (score.value, score.status) == (-0.5, "wrong")
    assert score.explanation.endswith("2 of the last 4 tokens: -0.5")


def test_the_factor_scales_it() -> None:
    assert judge(Overlong(of=Match(), limit=10, buffer=4, factor=0.2), text(10)).value == pytest.approx(0.8)


def test_a_failed_score_stays_one() -> None:
    score = judge(REWARD, text(10), Task(key="bare", prompt="?"))
    assert score.status == "error" and math.isnan(score.value)


def test_a_buffer_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match="buffer=11 is more than limit=10"):
        Overlong(of=Match(), limit=10, buffer=11)
