import math

import numpy as np
import pytest

from posttrain.statistics.intervals import t_quantile
from posttrain.statistics.power import detectable, power, seeds_for


def test_power_of_two_seeds_in_closed_form() -> None:
    # One degree of freedom: without a difference, the power is the level of the test.
    assert power(0.0, 1.0, 2) == pytest.approx(0.05, abs=1e-6)
    assert power(0.0, 1.0, 9, level=0.9) == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize(("difference", "seeds"), [(1.0, 5), (2.0, 3), (0.5, 20), (12.0, 2)])
def test_power_is_how_often_the_test_rejects(difference: float, seeds: int) -> None:
    x_MN = np.random.default_rng(seeds).normal(difference, 1.0, size=(40_000, seeds))
    t_M = x_MN.mean(axis=1) / x_MN.std(axis=1, ddof=1) * math.sqrt(seeds)
    rejected = float(np.mean(np.abs(t_M) > t_quantile(0.975, seeds - 1)))
    assert power(difference, 1.0, seeds) == pytest.approx(rejected, abs=0.01)


def test_power_in_published_tables() -> None:
    # Cohen 1988, table 2.3.5, as computed exactly since: a paired t test of an effect of 0.5 needs 34 pairs.
    assert seeds_for(0.5, 1.0) == 34
    assert seeds_for(0.8, 1.0) == 15
    assert seeds_for(1e-6, 1.0) is None


def test_the_detectable_difference_has_the_wanted_power() -> None:
    for seeds in (2, 3, 5, 10, 100):
        assert power(detectable(0.02, seeds), 0.02, seeds) == pytest.approx(0.8, abs=1e-6)
    assert detectable(0.02, 1) == math.inf
    assert detectable(0.0, 5) == 0.0


def test_power_needs_a_std_and_two_seeds() -> None:
    with pytest.raises(ValueError, match="got std 0"):
        power(1.0, 0.0, 5)
    with pytest.raises(ValueError, match="1 seeds"):
        power(1.0, 1.0, 1)
