"""Best of n: the first of the best by value, or by the reward where data is made."""

import asyncio
import math

import pytest
from pydantic import TypeAdapter

from posttrain.components.search import Search, place_of_best
from posttrain.components.search.best_of import BestOf
from posttrain.errors import UserError
from tests.components.search.lines import TASK, Lines, Scorer, never

SCRIPT = {"P:": ["a", "b", "c", "d"]}


def test_the_first_of_the_best_by_value() -> None:
    lines = Lines(SCRIPT, {"a": 0.1, "b": 1.4, "c": 1.2, "d": -3.0})
    found = asyncio.run(BestOf(n=4).search(TASK, {"policy": lines, "value": lines}, never))
    assert found.values == (0.1, 1.0, 1.0, 0.0), "clipped to [0, 1]"
    assert found.best.completion == "b"
    assert found.statistics == {"rollouts": 4.0, "best_after": 2.0, "sampled_tokens": 8.0}
    assert [t.sample for t in found.trajectories] == [0, 1, 2, 3]


def test_by_the_reward() -> None:
    search = BestOf(n=3, value_role=None)
    assert search.uses_rewards and search.roles == {"policy"}
    found = asyncio.run(search.search(TASK, {"policy": Lines(SCRIPT)}, Scorer({"a": 0.0, "c": 0.5})))
    assert found.best.completion == "c" and math.isnan(found.values[1])
    with pytest.raises(UserError, match="makes training data and cannot answer"):
        asyncio.run(search.search(TASK, {"policy": Lines(SCRIPT)}))


def test_failed_scores_are_never_best() -> None:
    assert place_of_best([math.nan, -5.0, math.nan]) == 1
    assert place_of_best([math.nan, math.nan]) == 0


def test_as_text() -> None:
    assert TypeAdapter(Search).validate_python("best_of") == BestOf()
