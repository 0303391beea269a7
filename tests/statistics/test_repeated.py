import math

import numpy as np
import pytest

from posttrain.statistics.repeated import repeated_difference, sign_flip


def test_the_paired_interval_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, standard deviation 1, standard error 1/sqrt(3); t of 2 degrees is 4.302653.
    got = repeated_difference([10.0, 10.0, 10.0], [11.0, 12.0, 13.0])
    reach = 4.302653 / math.sqrt(3)
    assert got.value == pytest.approx(2.0)
    assert got.interval == pytest.approx((2 - reach, 2 + reach), rel=1e-6)
    assert (got.seeds, got.higher, got.lower) == (3, 3, 0)
    assert got.detectable == pytest.approx((4.302653 + 0.841621) / math.sqrt(3), rel=1e-6)


def test_what_seeds_share_is_no_part_of_the_spread() -> None:
    luck = [0.0, 50.0, -20.0, 7.0]
    assert repeated_difference(luck, [x + 1.0 for x in luck]).interval == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize(
    ("differences", "p_value"),
    # All five of a sign: 2 of 32 choices are as far out. 3, -1: of +-3 +-1, two have a sum of 4 and two of 2: all four.
    [([1.0, 2.0, 3.0, 4.0, 5.0], 2 / 32), ([3.0, -1.0], 1.0), ([0.0, 0.0], 1.0)],
)
def test_sign_flip_by_hand(differences: list[float], p_value: float) -> None:
    assert sign_flip(differences) == pytest.approx(p_value)


def test_sign_flip_of_many_seeds_is_drawn_and_close_to_exact() -> None:
    rng = np.random.default_rng(0)
    few = rng.normal(0.5, 1.0, 14)
    drawn = sign_flip([*few, 0.0])  # a difference of 0 changes no sum, but makes it too many to count out
    assert drawn == pytest.approx(sign_flip(few), abs=0.015)


def test_one_seed_says_nothing_of_how_sure_it_is() -> None:
    got = repeated_difference([1.0], [2.0])
    assert got.interval == (-math.inf, math.inf)
    assert (got.value, got.detectable) == (1.0, math.inf)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(600):
        low, high = repeated_difference(rng.normal(size=5), rng.normal(0.3, 1.0, size=5)).interval
        inside += low <= 0.3 <= high
    assert 0.93 <= inside / 600 <= 0.975


def test_both_methods_need_the_same_seeds() -> None:
    with pytest.raises(ValueError, match="2 runs and 1 runs"):
        repeated_difference([1.0, 2.0], [1.0])
