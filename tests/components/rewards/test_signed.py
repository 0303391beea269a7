import pytest

from posttrain.components.rewards.brevity import Brevity
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.signed import Signed
from posttrain.methods.policy_gradient.topr import signed
from posttrain.types import Task
from tests.components.rewards.judging import judge


@pytest.mark.parametrize(("text", "value"), [("42", 1.0), ("41", -1.0), ("", -1.0)])
def test_right_is_one_and_wrong_is_minus_one(text: str, value: float) -> None:
    score = judge(Signed(of=Match(right=7.0, wrong=3.0)), text)
    assert (score.value, score.status) == (value, "ok" if value > 0 else "wrong")
    assert score.parts["of"].value == (7.0 if value > 0 else 3.0 if text == "41" else 0.0)


def test_a_score_that_failed_stays_an_error() -> None:
    assert judge(Signed(of=Match()), "42", Task(key="bare", prompt="?")).status == "error"


def test_a_match_signs_itself_and_nothing_is_signed_twice() -> None:
    assert signed(Match(tolerance=0.5)) == Match(tolerance=0.5, right=1.0, wrong=-1.0, missing=-1.0)
    wrapped = signed(Brevity(correct=Match()))
    assert wrapped == Signed(of=Brevity(correct=Match())) == signed(wrapped)
