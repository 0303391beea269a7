"""Rewards by the field of a row, with states of their own."""

from dataclasses import replace

import pytest

from posttrain.components.rewards import Reward
from posttrain.components.rewards.countdown import Countdown
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.routed import Routed
from posttrain.components.rewards.sum import Sum
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import attempt, judge, score_all

SUM = Task(key="a", prompt="6 times 7?", answer="42", domain="sums", fields={"verifier": "match"})
PUZZLE = Task(
    key="b", prompt="4 from 1 and 3", domain="puzzles", fields={"verifier": "target", "numbers": [1, 3], "target": 4}
)
PARTS = {"sums": Match(right=10.0), "puzzles": Countdown(right=5.0)}


def test_each_row_goes_to_its_verifier() -> None:
    scores = score_all(Routed(parts=PARTS), attempt("42", SUM), attempt("1+3", PUZZLE), attempt("42", PUZZLE))
    assert [(score.value, score.status) for score in scores] == [(10.0, "ok"), (5.0, "ok"), (0.0, "wrong")]


def test_a_column_names_the_verifier() -> None:
    reward = Routed(field="verifier", parts={"match": PARTS["sums"], "target": PARTS["puzzles"]})
    assert [judge(reward, text, of).value for text, of in (("42", SUM), ("3+1", PUZZLE))] == [10.0, 5.0]


def test_an_unknown_kind_is_an_error_before_anything_is_sampled() -> None:
    odd = replace(SUM, domain="poems")
    for reward in (Routed(parts=PARTS), Sum(parts={"all": Routed(parts=PARTS)})):
        with pytest.raises(UserError, match=r"task a has the domain 'poems'.*no part for it.*reward.other"):
            reward.check([SUM, odd])
        reward.check([SUM, PUZZLE])
    with pytest.raises(UserError, match="names 'set', but task a has no such field"):
        Routed(field="set", parts=PARTS).check([SUM])
    with pytest.raises(UserError, match="no part for it"):
        judge(Routed(parts=PARTS), "42", odd)


def test_another_reward_takes_the_rest() -> None:
    reward = Routed(field="set", parts={"x": Countdown()}, other=Match(right=3.0))
    reward.check([SUM])
    assert judge(reward, "42", SUM).value == 3.0


def test_it_passes_on_what_its_parts_need() -> None:
    assert Routed(parts=PARTS).needs_answer and not Routed(parts={"p": Countdown()}).needs_answer


def test_the_old_name_of_the_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="the reward 'by_field' was renamed: write routed"):
        Reward.find("by_field")
