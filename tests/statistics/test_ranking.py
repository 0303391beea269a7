"""Area under the ROC curve, its interval, and thresholds, worked out by hand."""

import math

import numpy as np
import pytest

from posttrain.statistics.ranking import auc, best_f1, shuffled_auc, true_positive_rate, youden

HIGH, LOW = [3.0, 1.0], [2.0, 0.0]


def test_area_and_error_by_hand() -> None:
    """Three of four pairs are in order. Q1 = 0.6, Q2 = 0.642857: variance (0.1875 + 0.0375 + 0.080357) / 4."""
    found = auc(HIGH, LOW)
    assert found.value == 0.75
    assert found.standard_error == pytest.approx(math.sqrt(0.3053571 / 4), rel=1e-6)
    assert auc([1.0], [1.0]).value == 0.5


def test_the_ends_are_where_their_own_error_reaches_the_measured_area() -> None:
    rng = np.random.default_rng(0)
    high, low = rng.normal(0.8, 1, 30), rng.normal(0, 1, 50)
    found = auc(high, low)
    for end in found.interval:
        spread = 1 + 39 * (1 - end) / (2 - end) + 39 * end / (1 + end)
        error = math.sqrt(end * (1 - end) * spread / 1500)
        assert abs(found.value - end) == pytest.approx(1.959964 * error, rel=1e-5)
    assert found.interval.low < found.value < found.interval.high


def test_other_way_round_it_is_the_rest() -> None:
    there, back = auc([5.0, 4.0, 1.0], [2.0, 0.0]), auc([2.0, 0.0], [5.0, 4.0, 1.0])
    assert there.value + back.value == 1
    assert there.interval.low + back.interval.high == pytest.approx(1)
    assert there.interval.high + back.interval.low == pytest.approx(1)


def test_without_an_error_to_see_the_interval_still_has_a_width() -> None:
    few, many = auc([2.0] * 5, [1.0] * 5), auc([2.0] * 500, [1.0] * 500)
    assert few.value == few.interval.high == many.value == 1.0
    assert few.interval.low < 0.8 < 0.98 < many.interval.low < 1.0


def test_the_interval_covers_as_often_as_it_states() -> None:
    """Normal scores one standard deviation apart: the area is Phi(1 / sqrt 2) = 0.7602."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        low, high = auc(rng.normal(1, 1, 25), rng.normal(0, 1, 25)).interval
        covered += low <= 0.7602 <= high
    assert 0.91 <= covered / 300 <= 0.99


def test_labels_dealt_at_random() -> None:
    """Of the six ways to name two of four, one puts both on top."""
    mean, middle, p = shuffled_auc([3.0, 2.0], [1.0, 0.0], shuffles=6000)
    assert p == pytest.approx(1 / 6, abs=0.02)
    assert mean == pytest.approx(0.5, abs=0.02)
    assert (middle.low, middle.high) == (0.0, 1.0)
    assert shuffled_auc(HIGH, LOW, seed=1) == shuffled_auc(HIGH, LOW, seed=1) != shuffled_auc(HIGH, LOW, seed=2)
    assert shuffled_auc([1.0, 1.0], [1.0])[2] == 1.0, "ties count as at least as high"


def test_thresholds_by_hand() -> None:
    """From 3 down: 1 hit; 1 and 1 false; 2 and 1; 2 and 2. F1 is 2/3, 1/2, 4/5, 2/3."""
    assert best_f1(HIGH, LOW) == pytest.approx(0.8)
    assert youden(HIGH, LOW) == 0.5
    assert true_positive_rate(HIGH, LOW) == 0.5
    assert true_positive_rate(HIGH, LOW, at=0.5) == 1.0
    assert true_positive_rate([0.0], [1.0]) == 0.0


def test_scores_that_are_missing_are_refused() -> None:
    for bad in ([], [math.nan]):
        with pytest.raises(ValueError, match="at least one finite number of each kind"):
            auc([1.0], bad)
