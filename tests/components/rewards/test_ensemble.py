"""Ensembles of rewards: combinations, scales, failures."""

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rewards.ensemble import Ensemble
from posttrain.components.rewards.robust import Robust
from posttrain.types import Group, Score
from tests.components.rewards.judging import attempt, score_all


@frozen
class Column(Reward):
    """A number of a completion such as "1 5", or an error for "?"."""

    place: int
    scale: float = 1.0
    offset: float = 0.0

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        words = [t.completion.split()[self.place] for t in group]
        return [
            failure("cannot") if word == "?" else Score(value=self.scale * float(word) + self.offset, status="ok")
            for word in words
        ]


def made(**more: object) -> Ensemble:
    return Ensemble(parts={"a": Column(place=0), "b": Column(place=1)}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("combine", "values"), [("mean", [3.0, 2.0]), ("worst", [1.0, 2.0]), ("uncertain", [1.0, 2.0])]
)
def test_the_three_combinations(combine: str, values: list[float]) -> None:
    scores = score_all(made(combine=combine, standardised=False), attempt("1 5"), attempt("2 2"))
    assert [s.value for s in scores] == values  # of 1 and 5: mean 3, variance 4, penalty half of it
    assert [s.parts["disagreement"].value for s in scores] == [2.0, 0.0]


def test_scales_and_offsets_of_parts_do_not_matter_after_the_start() -> None:
    rng = np.random.default_rng(0)
    plain, other = (
        made(start=8),
        Ensemble(parts={"a": Column(place=0), "b": Column(place=1, scale=100, offset=7)}, start=8),
    )
    contexts = [RewardContext(learning=True), RewardContext(learning=True)]
    for _ in range(3):
        texts = [f"{a:.3f} {b:.3f}" for a, b in rng.normal(size=(8, 2))]
        one, two = (
            score_all(reward, *map(attempt, texts), context=context)
            for reward, context in zip((plain, other), contexts, strict=True)
        )
    assert np.allclose([s.value for s in one], [s.value for s in two])
    assert json.loads(json.dumps(contexts[0].state)) == contexts[0].state, "state is JSON"
    count, mean, spread = contexts[1].state["seen"]["b"]
    assert count == 24 and 0 < (spread / count) ** 0.5 < 200 and abs(mean) < 100


def test_the_running_mean_by_hand() -> None:
    context = RewardContext(learning=True)
    first = score_all(made(start=4, combine="mean"), *map(attempt, ("1 1", "3 3", "5 5", "7 7")), context=context)
    assert [s.value for s in first] == [1, 3, 5, 7], "as they are, before there are enough"
    assert context.state["seen"]["a"] == [4, 4.0, 20.0]
    (score,) = score_all(made(start=4, combine="mean"), attempt("9 9"), context=context)
    assert score.value == pytest.approx((9 - 4) / math.sqrt(5))


def test_a_failed_part_is_an_error_and_is_not_counted() -> None:
    context = RewardContext(learning=True)
    one, two = score_all(made(), attempt("? 1"), attempt("1 1"), context=context)
    assert one.status == "error" and "part 'a' failed" in one.explanation and two.status == "ok"
    assert context.state["seen"]["a"][0] == 1 and context.state["seen"]["b"][0] == 2
    assert score_all(made()) == []


@frozen
class Doubted(Reward):
    """A number and its standard deviation, of a completion such as "1 5 .5 .1"."""

    place: int

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        words = [list(map(float, t.completion.split())) for t in group]
        return [
            Score(value=own[self.place], status="ok", parts={"std": Score(value=own[self.place + 2], status="ok")})
            for own in words
        ]


def doubted(text: str, *more: str, **settings: object) -> list[float]:
    reward = Ensemble(parts={"a": Doubted(place=0), "b": Doubted(place=1)}, **settings)  # type: ignore[arg-type]
    return [s.value for s in score_all(reward, *map(attempt, (text, *more)))]


def test_the_surest_part_alone_and_mixed_with_the_worst() -> None:
    """Of 1 and 5 the second is surer, then the first, then both alike: 0.4 * 5 + 0.6 * 1."""
    texts = ("1 5 .5 .1", "1 5 .1 .5", "1 5 .3 .3")
    assert doubted(*texts, combine="surest", standardised=False) == [5.0, 1.0, 1.0]
    assert doubted(*texts, combine="mixture", standardised=False) == pytest.approx([2.6, 1.0, 1.0])
    assert doubted(*texts, combine="mixture", alpha=1.0, standardised=False) == [5.0, 1.0, 1.0]
    assert doubted(*texts, combine="mixture", nominal="mean", standardised=False) == pytest.approx([1.8] * 3)
    # Standardised, they have the part's scale: 2 of a part that differs by 20 is less than .5 of one by 2.
    assert doubted("0 0 .5 2", "2 20 .5 2", combine="surest") == pytest.approx([-1.0, 1.0])
    assert doubted("0 20 .5 2", "2 0 .5 2", combine="surest") == pytest.approx([1.0, -1.0])


def test_a_part_without_a_std_is_not_called_surest() -> None:
    [score] = score_all(made(combine="surest"), attempt("1 5"))
    assert score.status == "error" and "part 'a' states no standard deviation" in score.explanation
    assert "{kind: robust, heads: 1}" in score.explanation


def test_a_model_of_one_head_with_a_std_is_a_part() -> None:
    """As the stage `heads` trains it with ``loss: gaussian``: outputs m and log s."""
    score = Robust(heads=1).of_outputs(np.array([1.5, math.log(0.25)], np.float32))
    assert score.value == 1.5 and score.parts["std"].value == pytest.approx(0.25)


def test_no_part_is_no_ensemble() -> None:
    with pytest.raises(ValidationError):
        Ensemble(parts={})
