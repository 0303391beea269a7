from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from posttrain.components.advantages.pool_mean import PoolMean
from posttrain.components.filters.balanced import Balanced
from tests.builders import batch

Scale = Literal["none", "pool"]


def advantages(rewards: list[list[float]], pools: list[tuple[float, ...]], scale: Scale = "none") -> list[list[float]]:
    given = batch(rewards)
    groups = tuple(replace(g, pool=pool) for g, pool in zip(given.groups, pools, strict=True))
    _, credit = PoolMean(scale=scale)({}, replace(given, groups=groups))
    return [a.tolist() for a in credit.advantages]


def test_the_baseline_is_the_pool_not_the_group() -> None:
    # 3 of 32 right: baseline 0.09375; the balanced group's own mean would be 0.5
    pool = (1.0,) * 3 + (0.0,) * 29
    assert advantages([[1, 1, 0, 0]], [pool]) == [[0.90625] * 2] * 2 + [[-0.09375] * 2] * 2


def test_each_group_has_its_own_pool_or_is_its_own() -> None:
    assert advantages([[1, 0], [1, 0, 0, 0]], [(1, 1, 1, 0), ()]) == [
        [0.25] * 2,
        [-0.75] * 2,
        [0.75] * 2,
        *[[-0.25] * 2] * 3,
    ]


def test_without_itself_the_baseline_is_the_mean_of_the_others() -> None:
    """Of the pool 1, 0, 0.5, 0 the kept 1 has the others' mean 1/6, and 0.5 has 1/3; a pool of one has none."""
    given = batch([[1, 0.5], [1]])
    groups = tuple(replace(g, pool=pool) for g, pool in zip(given.groups, [(1, 0, 0.5, 0), ()], strict=True))
    _, credit = PoolMean(itself=False)({}, replace(given, groups=groups))
    assert [a[0] for a in credit.advantages] == pytest.approx([5 / 6, 1 / 6, 1.0])


def test_std_of_the_pool() -> None:
    # 1, 0, 0, 0: unbiased variance (0.75^2 + 3 * 0.25^2) / 3 = 0.25
    [first], [second] = (a[:1] for a in advantages([[1, 0]], [(1, 0, 0, 0)], "pool"))
    assert (first, second) == pytest.approx((1.5, -0.5), rel=1e-5)


@pytest.mark.parametrize("scale", ["none", "pool"])
def test_equal_rewards_give_exactly_nothing(scale: Scale) -> None:
    assert advantages([[0.1] * 4, [0.3] * 2], [(0.1,) * 32, ()], scale) == [[0.0, 0.0]] * 6


@pytest.mark.parametrize("scale", ["none", "pool"])
def test_a_pool_of_one_has_mean_zero_and_std_one(scale: Scale) -> None:
    assert advantages([[0.5]], [()], scale) == [[pytest.approx(0.5, rel=1e-5)] * 2]


@pytest.mark.parametrize("p", [0.1, 0.3, 0.8])
def test_a_balanced_group_does_not_sum_to_zero(p: float) -> None:
    """Its mean advantage is 1/2 - p of the pool."""
    given = batch([np.repeat([1.0, 0.0], [round(20 * p), round(20 * (1 - p))]).tolist()])
    _, kept, _ = Balanced(n=4)({}, given.groups)
    chosen = replace(batch([kept[0].rewards.tolist()]), groups=tuple(kept))
    _, credit = PoolMean()({}, chosen)
    assert np.mean([a.mean() for a in credit.advantages]) == pytest.approx(0.5 - p, abs=1e-6)
