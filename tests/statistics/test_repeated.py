import math

import numpy as np
import pytest

from posttrain.statistics.power import power
from posttrain.statistics.repeated import paired_differences, repeated_difference, sign_flip, smallest_sign_flip_p


def test_the_paired_interval_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, standard deviation 1, standard error 1/sqrt(3); t of 2 degrees is 4.302653.
    got = repeated_difference([10.0, 10.0, 10.0], [11.0, 12.0, 13.0])
    reach = 4.302653 / math.sqrt(3)
    assert got.value == pytest.approx(2.0)
    assert got.interval == pytest.approx((2 - reach, 2 + reach), rel=1e-6)
    assert (got.seeds, got.higher, got.lower) == (3, 3, 0)
    # t = 2 sqrt(3) with two degrees of freedom: P(|T| > t) = 1 - t / sqrt(2 + t^2).
    assert got.p_value == pytest.approx(1 - math.sqrt(12 / 14))
    assert got.sign_flip_p == pytest.approx(0.25)
    assert got.std == pytest.approx(1.0)
    assert power(got.detectable, 1.0, 3) == pytest.approx(0.8)


def test_what_seeds_share_is_no_part_of_the_spread() -> None:
    luck = [0.0, 50.0, -20.0, 7.0]
    got = repeated_difference(luck, [x + 1.1 for x in luck])
    assert (got.value, got.interval, got.std) == (1.1, (1.1, 1.1), 0.0)
    assert got.p_value == smallest_sign_flip_p(4) == 0.125  # no std, so no t test


def test_differences_have_no_rounding() -> None:
    assert paired_differences([0.3, 0.7], [0.1 + 0.2, 0.7 + 2.78e-17]) == [0.0, 0.0]
    assert repeated_difference([0.1, 0.2, 0.3], [0.3, 0.1, 0.2]).value == 0.0
    assert paired_differences([1e9], [1e9 + 0.25]) == [0.25]
    assert paired_differences([0.0], [0.0]) == [0.0]
    assert paired_differences([1e-9], [3e-9]) == [pytest.approx(2e-9, rel=1e-9)]


def test_the_p_value_and_the_interval_agree() -> None:
    generator = np.random.default_rng(3)
    for _ in range(300):
        count = int(generator.integers(2, 8))
        got = repeated_difference(generator.normal(size=count), generator.normal(1.0, 0.7, size=count))
        assert (got.p_value < 0.05) == (not got.interval.low <= 0 <= got.interval.high)


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


def test_one_seed_shows_nothing_of_how_sure_it_is() -> None:
    got = repeated_difference([1.0], [2.0])
    assert got.interval == (-math.inf, math.inf)
    assert (got.value, got.detectable) == (1.0, math.inf)


def test_the_interval_holds_the_truth_as_often_as_it_states() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(600):
        low, high = repeated_difference(rng.normal(size=5), rng.normal(0.3, 1.0, size=5)).interval
        inside += low <= 0.3 <= high
    assert 0.93 <= inside / 600 <= 0.975


def test_both_methods_need_the_same_seeds() -> None:
    with pytest.raises(ValueError, match="2 runs and 1 runs"):
        repeated_difference([1.0, 2.0], [1.0])
