import math
from dataclasses import replace

from posttrain.components import environments
from posttrain.components.environments import Episode
from posttrain.components.rewards.verdict import Verdict
from tests.components.rewards.judging import attempt, score_all


def test_it_pays_what_the_world_says() -> None:
    won = environments.Verdict(value=0.25, solved=True, explanation="third try")
    said = replace(attempt("x"), facts=(Episode(valid_turns=(True, True), verdict=won),))
    no = environments.Verdict(value=-0.4, solved=False, explanation="no")
    lost = replace(attempt("x"), facts=(Episode(verdict=no),))
    first, second = score_all(Verdict(), said, lost)
    assert (first.value, first.status, first.explanation) == (0.25, "ok", "third try")
    assert (second.value, second.status) == (-0.4, "wrong")
    assert [s.value for s in score_all(Verdict(pay="solved"), said, lost)] == [1.0, 0.0]


def test_an_attempt_without_a_world_is_an_error() -> None:
    (score,) = score_all(Verdict(), attempt("x"))
    assert score.status == "error" and math.isnan(score.value)
    assert "take a rollout with an environment" in score.explanation
