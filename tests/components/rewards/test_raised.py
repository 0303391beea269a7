"""Low scores raised by another reward."""

import pytest

from posttrain.components.rewards import Reward
from posttrain.components.rewards.function import Function
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.phrases import Phrases
from posttrain.components.rewards.raised import Raised
from tests.components.rewards.judging import Write, judge


def stated(write: Write) -> Function:
    """The completion's first word is its score."""
    return write("def score(completion):\n    return float(completion.split()[0])\n", time_limit=None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5 wait, hold on", 0.5),
        ("0.49 nothing", 0.49),
        ("0.49 wait,", 0.54),
        ("0.49 wait, hold on", 0.59),
        ("0 wait, hold on", 0.1),
        ("-3 wait, hold on", -2.9),
    ],
)
def test_scores_below_the_bound_are_raised(write: Write, text: str, value: float) -> None:
    found = judge(Raised(of=stated(write), by=Phrases(needed=2)), text)
    assert found.value == pytest.approx(value) and found.parts.keys() == {"of", "by"}


def test_the_jump_is_there_and_a_cap_closes_it(write: Write) -> None:
    """0.49 overtakes 0.5 as released; with a cap at the bound it does not, and nothing is lowered to it."""
    released = Raised(of=stated(write), by=Phrases(needed=1))
    closed = Raised(of=stated(write), by=Phrases(needed=1), cap=0.5)
    assert judge(released, "0.49 wait,").value > judge(released, "0.5 wait,").value
    assert judge(closed, "0.49 wait,").value == judge(closed, "0.5 wait,").value == 0.5
    assert judge(Raised(of=stated(write), by=Phrases(needed=1), cap=0.2), "0.4 wait,").value == 0.4


def test_the_answer_decides_what_is_correct_and_a_weight_of_1_replaces_a_zero() -> None:
    reward = Raised(of=Match(), by=Phrases(needed=4), weight=1.0)
    wrong = judge(reward, "wait, hold on\n41")
    assert (wrong.value, wrong.status, wrong.answer) == (0.5, "wrong", "41")
    assert judge(reward, "wait,\n42").value == 1.0 and judge(reward, "wait,\n42").status == "ok"


def test_a_failure_of_either_is_a_failure(write: Write) -> None:
    for reward in (Raised(of=stated(write), by=Phrases()), Raised(of=Match(), by=stated(write))):
        assert isinstance(reward, Reward) and judge(reward, "no number").status == "error"
