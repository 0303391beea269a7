"""What a verifier is rewarded for."""

import math

import pytest

from posttrain.components.rewards.verification import Verification
from posttrain.types import Task
from tests.components.rewards.judging import judge

RIGHT = Task(key="q", prompt="?", answer="+", fields={"steps": 2})
WRONG = Task(key="q", prompt="?", answer="-", fields={"steps": 2})


def test_the_final_verdict_decides_and_the_form_adds() -> None:
    text = " 1+1=2 +; 2+2=4 -\n#### +"
    assert judge(Verification(form=0.25), text, RIGHT).value == 1.25
    other = judge(Verification(form=0.25), text, WRONG)
    assert (other.value, other.status, other.answer) == (0.25, "wrong", "+")
    assert "the verdict is +, that of the rule -" in other.explanation
    assert other.parts["verdict"].value == 0.0 and other.parts["form"].value == 1.0


@pytest.mark.parametrize(
    "text", ["", " +\n#### +", " + ; + ; +\n#### +", " + ; +", " + ; +\n####", " + ; +\n#### +-", " + ; +\n#### +\nno"]
)
def test_another_number_of_marks_or_form_gets_nothing(text: str) -> None:
    score = judge(Verification(), text, RIGHT)
    assert (score.value, score.status) == (0.0, "wrong")
    assert "not a verdict on 2 steps" in score.explanation


def test_a_cut_verification_is_none() -> None:
    assert judge(Verification(), " a +; b +\n#### +", RIGHT, stop_reason="length").value == 0.0


def test_a_task_that_is_no_solution_is_an_error() -> None:
    assert math.isnan(judge(Verification(), " +\n#### +", Task(key="q", prompt="?", answer="4")).value)
