"""Rollouts that are drawn again by their rank."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.fixed_baseline import FixedBaseline
from posttrain.components.advantages.redrawn import Redrawn, weights
from posttrain.errors import UserError
from posttrain.types import Score
from tests.builders import batch, group


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("best_worst", [0, 1, 1, 0, 0]),
        ("best_random", [0.1, 0.4, 0.1, 0.1, 0.1]),
        ("best", [0, 1, 0, 0, 0]),
        ("square", [0.04, 0.49, 0.25, 0.16, 0.01]),
        ("none", [1, 1, 1, 1, 1]),
    ],
)
def test_weights_by_hand(rule: str, expected: list[float]) -> None:
    assert weights(group([0.2, 0.7, -0.5, 0.4, 0.1]), rule) == pytest.approx(expected)


def test_edges() -> None:
    """A group of one has weight 1; of equal rewards the first is the best and the last the worst."""
    assert weights(group([3.0]), "best_worst").tolist() == [1]
    assert weights(group([1.0, 1.0, 1.0]), "best_worst").tolist() == [1, 0, 1]


def test_as_many_draws_as_rollouts() -> None:
    """Advantages are the rewards here: a drawn one has a multiple, and what is neither best nor worst has none."""
    redrawn = Redrawn(advantage=FixedBaseline())
    rows = [[0.25, 2.0, 1.0, 0.5], [0.5, 4.0, 8.0, 1.0]]
    _, credit = redrawn(redrawn.start(), batch(rows))
    given = np.array(rows).ravel()
    times = np.array([a_T[0] for a_T in credit.advantages]) / given
    assert times.sum() == 8 and (times == times.round()).all()
    assert times[[2, 3, 5, 7]].tolist() == [0, 0, 0, 0]
    assert Redrawn(advantage=FixedBaseline(), rule="none")(redrawn.start() | {"rule": "none"}, batch(rows))[1].metrics[
        "drawn_share"] == 1.0  # fmt: skip


def test_the_rule_with_the_highest_r_squared_is_taken() -> None:
    """The reward is nearly right at the ends and is the opposite between them: best and worst are near a line."""
    redrawn = Redrawn(advantage=FixedBaseline(), rule="reliable")
    assert redrawn.prepares
    groups = []
    for shift, off in ((0.0, 0.0), (0.1, -0.2), (0.2, 0.1)):
        own = group([0.0 + shift, 4.0, 5.0, 6.0, 10.0 - shift])
        truths = [0.0 + shift, 9.0, 5.0, 1.0, 10.0 - shift + off]
        scored = [t.scored(replace(t.score, parts={"true": Score(value=true, status="ok")})) for t, true in
                  zip(own, truths, strict=True)]  # type: ignore[type-var]  # fmt: skip
        groups.append(replace(own, trajectories=tuple(scored)))
    state = asyncio.run(redrawn.prepare(redrawn.start(), groups, {}))
    assert state["rule"] == "best_worst"
    with pytest.raises(UserError, match="no part 'true'"):
        asyncio.run(redrawn.prepare(redrawn.start(), [group([0.0, 1.0])], {}))
