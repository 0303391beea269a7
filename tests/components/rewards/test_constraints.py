"""CGPO's reward: calibrated by a baseline answer, 0 where a constraint is broken."""

import math
from dataclasses import replace

import pytest

from posttrain.components.rewards.constraints import CALIBRATED, Constraints, calibrated
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.routed import Routed
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import judge

TASK = Task(key="t", prompt="6 * 7?", answer="42", fields={"baseline": "41"})
SHORT = Regex(pattern="^.{,2}$")
REWARD = Constraints(of=Match(right=1.0, wrong=-1.0), constraints={"short": SHORT})
UP, EVEN, DOWN = 1 / (1 + math.exp(-2)), 0.5, 1 / (1 + math.exp(2))


@pytest.mark.parametrize(
    ("text", "baseline", "value", "status"),
    [
        ("42", "41", UP, "ok"),  # 1 against -1
        ("42", "42", EVEN, "ok"),
        ("41", "41", EVEN, "wrong"),  # as good as the baseline, and wrong
        ("41", "42", DOWN, "wrong"),
        ("it is 42", "41", 0.0, "wrong"),  # too long
    ],
)
def test_by_hand(text: str, baseline: str, value: float, status: str) -> None:
    score = judge(REWARD, text, replace(TASK, fields={"baseline": baseline}))
    assert score.value == pytest.approx(value)
    assert score.status == status


def test_a_violator_has_no_reward_however_high_its_own_is() -> None:
    score = judge(REWARD, "42.", replace(TASK, answer="42"))
    assert score.value == 0.0 and score.parts[CALIBRATED].value == pytest.approx(UP)
    assert "short" in score.explanation


def test_what_keeps_the_constraints_is_above_zero_even_where_rewards_are_very_negative() -> None:
    worst = Constraints(of=Match(right=1.0, wrong=-1e9), constraints={"short": SHORT}, baseline=0.0)
    assert 0.0 < judge(worst, "41", Task(key="t", prompt="?", answer="42")).value < 1e-5
    assert calibrated(1e9, -1e9) < 1.0 and calibrated(3.0, 3.0) == 0.5


def test_the_first_demonstration_is_the_baseline_where_there_is_none() -> None:
    shown = Task(key="t", prompt="?", answer="42", demonstrations=("42", "41"))
    assert judge(REWARD, "42", shown).value == EVEN
    with pytest.raises(UserError, match="no baseline answer"):
        REWARD.check([Task(key="t", prompt="?", answer="42")])
    replace(REWARD, baseline=0.0).check([Task(key="t", prompt="?", answer="42")])
    assert judge(REWARD, "42", Task(key="t", prompt="?", answer="42")).status == "error"


def test_no_task_is_scored_by_the_constraints_of_another() -> None:
    limits = Routed(parts={"sums": SHORT, "words": Regex(pattern="^[a-z ]+$")})
    reward = Constraints(of=Regex(pattern="42|ab"), constraints={"limits": limits}, baseline=0.0)
    assert judge(reward, "ab c", Task(key="t", prompt="?", domain="words")).value > 0.5
    assert judge(reward, "ab c", Task(key="t", prompt="?", domain="sums")).value == 0.0


def test_what_cannot_be_scored_is_an_error() -> None:
    broken = Constraints(of=Match(), constraints={"short": SHORT}, baseline=0.0)
    assert judge(broken, "42", Task(key="t", prompt="?")).status == "error"
