from dataclasses import replace

import pytest

from posttrain.components.rewards.rating import Rating
from posttrain.components.rollouts import DataRating
from tests.components.rewards.judging import attempt, score_all


def test_the_rating_is_the_reward() -> None:
    rated = [replace(attempt("text"), facts=(DataRating(rating=rating),)) for rating in (1.0, -1.0, 0.3)]
    scores = score_all(Rating(), *rated)
    assert [(s.value, s.status) for s in scores] == [(1.0, "ok"), (-1.0, "wrong"), (0.3, "wrong")]
    assert score_all(Rating(correct_at=0.3), rated[2])[0].status == "ok"
    assert scores[2].explanation == "rated 0.3 in the data"


def test_what_was_not_rated_is_an_error() -> None:
    (score,) = score_all(Rating(), attempt("text"))
    assert score.status == "error"
    assert "rollout 'recorded'" in score.explanation
    assert score.value != pytest.approx(0.0, nan_ok=False)
