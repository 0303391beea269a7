"""Logistic regression and Platt's calibration: stationary points by hand, errors of clusters."""

import math

import numpy as np
import pytest

from posttrain.statistics.logistic import RIDGE, Platt, isotonic, platt, regress, sigmoid


def test_a_constant_by_hand() -> None:
    """3 of 4: the slope of the likelihood, 3 - 4 p, is that of the ridge."""
    fit = regress(np.ones((4, 1)), np.array([1.0, 1.0, 1.0, 0.0]), "abcd")
    b, chance = fit.effects[0].value, 1 / (1 + math.exp(-fit.effects[0].value))
    assert 3 - 4 * chance == pytest.approx(RIDGE * b, abs=1e-9)
    assert 0.9 < b < math.log(3)
    meat = (3 * (1 - chance) ** 2 + chance**2) * 4 / 3
    assert fit.effects[0].standard_error == pytest.approx(math.sqrt(meat) / (4 * chance * (1 - chance) + RIDGE))


def test_rows_of_a_cluster_count_once() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60).astype(float)
    once = regress(x, y, range(60))
    twice = regress(np.repeat(x, 2, 0), np.repeat(y, 2), np.repeat(np.arange(60), 2).tolist())
    for a, b in zip(once.effects, twice.effects, strict=True):
        assert b.value == pytest.approx(a.value, rel=0.02, abs=1e-3)
        assert b.standard_error == pytest.approx(a.standard_error, rel=0.02)
    apart = regress(np.repeat(x, 2, 0), np.repeat(y, 2), range(120))
    assert apart.effects[0].standard_error < 0.8 * once.effects[0].standard_error


def test_separated_outcomes_are_finite() -> None:
    fit = regress(np.array([[-1.0], [-1.0], [1.0], [1.0]] * 10), np.array([0.0, 0.0, 1.0, 1.0] * 10), range(40))
    assert 2 < fit.effects[0].value < 10 and fit.effects[0].p_value < 1e-6


def test_a_score_test_finds_a_column_that_matters() -> None:
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=400), rng.normal(size=400)
    y = (rng.random(400) < sigmoid(x + z)).astype(float)
    fit = regress(x[:, None], y, range(400))
    assert fit.test(z) < 1e-6 < 0.01 < fit.test(rng.normal(size=400))
    assert fit.test(2 * x) == pytest.approx(1.0, abs=0.2)


def test_platt_by_hand() -> None:
    """Two numbers, each with as many outcomes: the targets 3/4 and 1/4 of two of each, averaged where they meet."""
    found = platt([1.0, 1.0, -1.0, -1.0], [True, True, False, False])
    assert found.offset == pytest.approx(0.0, abs=1e-6) and found.slope == pytest.approx(math.log(3), rel=1e-4)
    same = platt([1.0, 1.0], [True, True], symmetric=True)
    assert same.slope == pytest.approx(math.log(3), rel=1e-4) and same.offset == 0.0
    assert Platt(2.0, 1.0).chance([-0.5]).tolist() == [0.5]


@pytest.mark.parametrize(("numbers", "outcomes"), [([], []), ([1.0], [True]), ([1.0, math.nan], [True, False])])
def test_platt_needs_both_classes_and_numbers(numbers: list[float], outcomes: list[bool]) -> None:
    with pytest.raises(ValueError):
        platt(numbers, outcomes)


def test_regression_needs_two_clusters() -> None:
    with pytest.raises(ValueError, match="one cluster"):
        regress(np.ones((2, 1)), np.array([0.0, 1.0]), "aa")
    with pytest.raises(ValueError, match="one each"):
        regress(np.ones((2, 1)), np.array([0.0]), "a")


def test_isotonic_regression_pools_what_falls() -> None:
    found = isotonic([4, 1, 3, 2, 2], [True, False, False, True, True])
    assert found.number_K.tolist() == [1, 2, 3, 4]
    assert found.chance([0, 1, 1.5, 2, 2.5, 3, 4, 9]) == pytest.approx([0, 0, 1 / 3, 2 / 3, 2 / 3, 2 / 3, 1, 1])
    both = isotonic([1.0, 2.0], [True, False], symmetric=True).chance([-2, -1, 1, 2])
    assert both == pytest.approx([0.5] * 4) and both + both[::-1] == pytest.approx([1.0] * 4)
    with pytest.raises(ValueError, match="all of them finite"):
        isotonic([float("nan")], [True])
