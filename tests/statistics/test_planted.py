"""The planted subsequence, exactly: by hand, by simulation, and the two forms of heterogeneity."""

import numpy as np
import pytest

from posttrain.statistics.planted import Planted
from posttrain.statistics.tilting import tilted

MIXED = Planted((0.1, 0.3, 0.9), (1 / 3, 1 / 3, 1 / 3), 3, 12)


def test_one_symbol_by_hand() -> None:
    """gamma 1/2, H = 3: complete after 1, 2, 3 symbols with 1/2, 1/4, 1/8; rewards 2, 1, 0."""
    world = Planted((0.5,), (1.0,), 1, 3)
    assert world.rewards.tolist() == [0.25, 0.25, 0.5, 0.0]
    assert world.mean == 1.25 and world.success == 0.75
    assert world.variance == pytest.approx(0.25 + 4 * 0.5 - 1.25**2)
    assert world.best_of(2) == pytest.approx(2 * (1 - 0.25) + 1 * (0.25 - 1 / 16))
    assert world.above(1.0) == 0.0 and world.above(0.5) == 0.5


def test_heterogeneity_over_steps_is_the_variance_of_the_reward() -> None:
    for world in (MIXED, Planted((0.4,), (1.0,), 2, 9), Planted((0.05, 0.95), (0.7, 0.3), 3, 20)):
        assert world.steps().sum() == pytest.approx(world.variance)
        assert (world.steps() >= 0).all()


def test_by_simulation() -> None:
    rng = np.random.default_rng(0)
    gamma = rng.choice(MIXED.gammas, 50_000)[:, None]
    fits = np.cumsum(rng.random((50_000, MIXED.horizon)) < gamma, 1)
    pays = (fits >= 3).sum(1) - (fits[:, -1] >= 3)
    assert pays.mean() == pytest.approx(MIXED.mean, rel=0.02)
    assert pays.var() == pytest.approx(MIXED.variance, rel=0.02)
    assert pays[: 4 * 12_000].reshape(-1, 4).max(1).mean() == pytest.approx(MIXED.best_of(4), rel=0.02)


def test_the_gap_grows_with_the_horizon_and_vanishes_for_one_policy() -> None:
    gaps = []
    for horizon in (10, 20, 40):
        mixed = Planted((0.1, 0.3, 0.9), (1 / 3, 1 / 3, 1 / 3), 3, horizon)
        gaps.append(mixed.verified(1.0).mean - mixed.imitated().mean)
        one = Planted((0.4,), (1.0,), 3, horizon)
        assert one.verified(1.0).mean - one.imitated().mean == 0.0
    assert 0 < gaps[0] < gaps[1] < gaps[2]


def test_from_traces_both_come_close() -> None:
    free, based = MIXED.estimated(0.5, 200_000, np.random.default_rng(0))
    assert free.mean == pytest.approx(MIXED.imitated().mean, rel=0.01)
    assert based.mean == pytest.approx(MIXED.verified(0.5).mean, rel=0.01)


def test_the_ball_by_hand() -> None:
    """Values 0 and 1 with chances of a half: q = (1 - r, 1 + r) / 2 is at the distance r^2."""
    assert tilted([0.0, 1.0], [0.5, 0.5], 0.25) == pytest.approx([0.25, 0.75])
    assert tilted([0.0, 1.0], [0.5, 0.5], 5.0) == [0.0, 1.0]
    assert tilted([0.0, 1.0], [0.5, 0.5], 0.0) == [0.5, 0.5]
    assert tilted([2.0, 2.0], [0.3, 0.7], 1.0) == [0.3, 0.7]
    values, weights = np.array([0.0, 1.0, 3.0, 10.0]), np.array([0.4, 0.3, 0.2, 0.1])
    small = np.array(tilted(values.tolist(), weights.tolist(), 0.01))
    spread = float(weights @ values**2 - (weights @ values) ** 2) ** 0.5
    assert float(small @ values) == pytest.approx(float(weights @ values) + 0.1 * spread)
    large = np.array(tilted(values.tolist(), weights.tolist(), 2.0))
    assert float(((large - weights) ** 2 / weights).sum()) == pytest.approx(2.0, abs=1e-6)
    assert large.min() >= 0.0 and large.sum() == pytest.approx(1.0)
