"""Pairwise advantages, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.pairwise import Pairwise
from posttrain.types import Batch, Group, Score
from tests.builders import batch


def with_margins(margin_GG: list[list[float]]) -> Batch:
    """One group whose scores have these margins as parts."""
    values = [sum(row) / len(row) for row in margin_GG]
    given = batch([values])
    rollouts = tuple(
        replace(
            rollout,
            sample=i,
            score=Score(
                value=values[i],
                status="ok",
                parts={
                    f"against_{j}": Score(value=margin, status="ok") for j, margin in enumerate(margin_GG[i]) if j != i
                },
            ),
        )
        for i, rollout in enumerate(given.trajectories)
    )
    return replace(given, groups=(Group(trajectories=rollouts),))


def advantages(given: Batch) -> list[float]:
    _, credit = Pairwise()({}, given)
    return [float(part[0]) for part in credit.advantages]


def test_two_rollouts_have_root_half_whatever_the_strength() -> None:
    for strength in (1.0, 3.0):
        found = advantages(with_margins([[0, strength], [-strength, 0]]))
        assert found == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-5)


def test_a_circle_cancels_and_counts_in_the_denominator() -> None:
    circle = [[0, 1, -1], [-1, 0, 1], [1, -1, 0]]
    given = with_margins([[float(x) for x in row] for row in circle])
    assert advantages(given) == [0, 0, 0] and Pairwise()({}, given)[1].metrics["inconsistency"] == 1.0
    # A fourth that loses to all: sum of squares 12, so the denominator is sqrt(12/24).
    rows = [[*map(float, row), 1.0] for row in circle] + [[-1.0, -1.0, -1.0, 0.0]]
    assert advantages(with_margins(rows)) == pytest.approx([0.25 / 0.5**0.5] * 3 + [-0.75 / 0.5**0.5], abs=1e-5)


def test_differences_of_rewards_are_grpo() -> None:
    given = batch([[0.3, 1.0, 0.0, 0.5], [2.0, 2.5]])
    ours, theirs = Pairwise(epsilon=1e-12)({}, given)[1], GroupMean(epsilon=1e-12)({}, given)[1]
    for one, other in zip(ours.advantages, theirs.advantages, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    margins = np.subtract.outer(given.return_N[:4], given.return_N[:4]).tolist()
    np.testing.assert_allclose(advantages(with_margins(margins)), [a[0] for a in theirs.advantages[:4]], rtol=1e-4)


def test_one_rollout_and_ties_have_none_and_advantages_sum_to_0() -> None:
    assert advantages(batch([[1.0]])) == [0.0]
    assert advantages(with_margins([[0.0, 0.0], [0.0, 0.0]])) == [0.0, 0.0]
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(5, 5))
    assert sum(advantages(with_margins((raw - raw.T).tolist()))) == pytest.approx(0, abs=1e-5)


def test_a_penalty_in_the_reward_is_added_to_the_margins() -> None:
    given = with_margins([[0.0, 1.0], [-1.0, 0.0]])
    penalized = replace(
        given, token_rewards=tuple(np.array([r.sum() - p]) for r, p in zip(given.token_rewards, (2, 0), strict=True))
    )
    # The margin is 1 - 2 = -1: the second is better.
    assert advantages(penalized) == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-5)
