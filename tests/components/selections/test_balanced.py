"""The balance of a selection by hand, its threshold, and the choice of a temperature."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.rewards.regex import Regex
from posttrain.components.selections._balance import Text, at, balance, best, picked
from posttrain.components.selections.balanced import Balanced
from posttrain.engines import Sampling
from posttrain.types import Completion, Task
from tests.builders import ScriptedSampler


def texts(*scores: float) -> list[Text]:
    """Texts with these scores; 1 and more is correct."""
    return [Text(text=f"{i}", score=score, right=score >= 1) for i, score in enumerate(scores)]


def test_balance_by_hand() -> None:
    assert balance(2, 4, 4) == 0.25
    assert balance(4, 4, 4) == 1.0
    assert balance(8, 8, 4) == 1.0, "more correct texts than wanted do not count"
    assert balance(0, 3, 4) == 0.0 and balance(0, 0, 4) == 0.0


def test_above_the_threshold_the_highest_first() -> None:
    own = texts(0.2, 1.1, 0.5, 1.1)
    assert [t.text for t in picked(own, 0.2, 64)] == ["1", "3", "2"], "strictly above, of equals the first"
    assert [t.text for t in picked(own, 0.2, 2)] == ["1", "3"]
    assert not picked(own, 1.1, 2)


def test_more_texts_of_a_query_until_there_are_enough() -> None:
    """Three and one texts: at most 1 gives 2 texts in all, at most 2 gives 3, at most 3 gives 4."""
    queries = [texts(1.0, 1.0, 0.1), texts(0.1), texts(-2.0)]
    assert [at(queries, -1.0, target=n, wanted=2).most for n in (1, 2, 3, 4, 99)] == [1, 1, 2, 3, 3]
    found = at(queries, -1.0, target=4, wanted=2)
    # 2 of 3 are correct, and 2 are wanted: 2 / 3; none of 1: 0; the query without a text is left out
    assert found.texts == 4 and found.score == pytest.approx((2 / 3 + 0.0) / 2)
    assert math.isnan(at(queries, 1.0, target=4, wanted=2).score)


def test_the_best_threshold_leaves_out_what_is_wrong() -> None:
    queries = [texts(1.2, 1.1, 0.3, 0.2), texts(1.2, 0.3)]
    found = best(queries, target=99, wanted=2)
    assert 0.3 <= found.threshold < 1.0 and found.score == pytest.approx((1.0 + 0.5) / 2)
    with pytest.raises(ValueError, match="no text has a score above -1"):
        best([texts(-1.0)], target=1, wanted=1)


class ByTemperature(ScriptedSampler):
    """Writes ``good`` at a temperature of 1, and ``bad`` at any other."""

    def bind(self, *key: int | str) -> "ByTemperature":
        return ByTemperature(*self.key, *key, log=self.completions)

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        drawn = await super().sample(token_ids, n, sampling, vectors)
        text = "good" if sampling.temperature == 1.0 else "bad"
        ids = np.array([*text.encode(), 0])
        logp = np.zeros(len(ids), np.float32)
        return [replace(c, text=f"{text}", token_ids=ids, logp=logp, stop_reason="stop") for c in drawn]


def measured(tasks: list[Task], **settings: Any) -> tuple[Balanced, Any]:
    rule = Balanced(reward=Regex(pattern="good|mine"), n=2, target=9, wanted=2, **settings)
    return rule, asyncio.run(rule.measure(tasks, {"policy": ByTemperature("policy")}))


def test_the_temperature_that_balances_best_and_the_own_solution() -> None:
    tasks = [Task(key="a", prompt="p"), Task(key="b", prompt="q", demonstrations=("mine",))]
    rule, seen = measured(tasks, temperatures=(0.5, 1.0))
    assert seen["temperature"] == 1.0 and [row["temperature"] for row in seen["tried"]] == [0.5, 1.0]
    chosen = rule.choose(tasks, seen)
    assert [task.demonstrations for task in chosen.tasks] == [("good",), ("mine", "good")]
    assert chosen.tasks[1].fields["origin"][0] == {"writer": "data", "sample": 0, "score": 1.0}
    assert "1.00 distinct correct texts a task, 100% of the tasks have one" in chosen.summary


def test_a_step_score_joins_and_orders() -> None:
    """0.2 for the steps: with it a sampled correct text is above the data's own solution."""
    tasks = [Task(key="b", prompt="q", demonstrations=("mine",))]
    rule, seen = measured(tasks, temperatures=(1.0,), steps=Regex(pattern="go", matched=0.2))
    assert [row["score"] for row in seen["pools"][0]] == [1.0, pytest.approx(1.2)]
    assert rule.choose(tasks, seen).tasks[0].demonstrations == ("good", "mine")


def test_nothing_scored() -> None:
    rule, seen = measured([Task(key="a", prompt="p")], temperatures=(1.0,))
    assert not rule.choose([Task(key="a", prompt="p")], {**seen, "pools": [[]]}).tasks
