import math
from typing import Any

import pytest

from posttrain.components.rewards.match import Match
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.steered import Steered
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import attempt, score_all

PARTS = {"novelty": Regex(pattern="n"), "feasibility": Regex(pattern="f")}


def task(eps: Any) -> Task:
    return Task(key="t", prompt="q", fields={"eps": eps})


@pytest.mark.parametrize(
    ("eps", "values"),
    [
        ([[1.0, 0.0]], [1.0, 0.0, 1.0]),
        ([[0.5, -1.0]], [0.5, -1.0, -0.5]),
        ([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5, 1.0]),
        ([[3.0, 0.0]], [1.0, 0.0, 1.0]),
        ([[0.0, 0.0]], [0.0, 0.0, 0.0]),
        ("planned", [0.5, 0.5, 1.0]),
    ],
)
def test_parts_are_weighed_by_strengths(eps: Any, values: list[float]) -> None:
    scores = score_all(Steered(parts=PARTS), *(attempt(text, task(eps)) for text in ("n", "f", "nf")))
    assert [score.value for score in scores] == values


def test_a_dimension_without_strength_is_not_scored_and_errors_are_kept() -> None:
    parts = {"novelty": Regex(pattern="n"), "right": Match()}
    (score,) = score_all(Steered(parts=parts), attempt("n", task([[1.0, 0.0]])))
    assert score.value == 1.0 and set(score.parts) == {"novelty"}
    (score,) = score_all(Steered(parts=parts), attempt("n", task([[1.0, 1.0]])))
    assert score.status == "error" and math.isnan(score.value)


@pytest.mark.parametrize("eps", [None, "x", [[1.0]], [1.0, 0.0], [[math.nan, 0.0]]])
def test_strengths_that_do_not_fit_are_refused(eps: Any) -> None:
    with pytest.raises(UserError, match="needs strengths"):
        Steered(parts=PARTS).check([task(eps)])
    (score,) = score_all(Steered(parts=PARTS), attempt("n", task(eps)))
    assert score.status == "error"
