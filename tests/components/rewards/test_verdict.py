import math
from dataclasses import replace

import pytest
from pydantic import ValidationError

from posttrain.components import environments
from posttrain.components.environments import Episode
from posttrain.components.rewards.verdict import Verdict
from tests.components.rewards.judging import attempt, score_all


def test_value_and_status_are_those_of_the_environment() -> None:
    won = environments.Verdict(value=0.25, solved=True, explanation="third try")
    said = replace(attempt("x"), facts=(Episode(valid_turns=(True, True), verdict=won),))
    no = environments.Verdict(value=-0.4, solved=False, explanation="no")
    lost = replace(attempt("x"), facts=(Episode(verdict=no),))
    first, second = score_all(Verdict(), said, lost)
    assert (first.value, first.status, first.explanation) == (0.25, "ok", "third try")
    assert (second.value, second.status) == (-0.4, "wrong")
    assert [s.value for s in score_all(Verdict(value="solved"), said, lost)] == [1.0, 0.0]


def test_a_rollout_without_an_environment_is_an_error() -> None:
    (score,) = score_all(Verdict(), attempt("x"))
    assert score.status == "error" and math.isnan(score.value)
    assert "take a rollout with an environment" in score.explanation


def test_the_old_name_of_its_setting_is_refused_with_the_new_one() -> None:
    with pytest.raises(ValidationError, match=r"Verdict\.pay was renamed: write value"):
        Verdict(pay="solved")  # type: ignore[call-arg]
