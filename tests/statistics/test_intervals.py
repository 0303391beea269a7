import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.statistics.intervals import (
    Interval,
    bootstrap_mean,
    clustered_mean,
    mean,
    paired_bootstrap,
    t_cdf,
    t_quantile,
    wilson,
)


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    # Newcombe 1998, Statistics in Medicine 17:857-872, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_intervals(correct: int, total: int, low: float, high: float) -> None:
    assert wilson(correct, total) == pytest.approx((low, high), abs=5e-5)


def test_wilson_by_hand() -> None:
    # z = 1: centre (1/2 + 1/8) / (1 + 1/4) = 1/2, reach sqrt(1/16 + 1/64) / (5/4) = sqrt(5)/10
    level = math.erf(1 / math.sqrt(2))
    assert wilson(2, 4, level) == pytest.approx((0.5 - math.sqrt(5) / 10, 0.5 + math.sqrt(5) / 10), abs=1e-12)


@given(st.integers(0, 500), st.integers(0, 500))
def test_wilson_stays_in_the_unit_interval_and_holds_the_share(correct: int, wrong: int) -> None:
    total = correct + wrong
    low, high = wilson(correct, total)
    mirror = wilson(wrong, total)
    assert 0.0 <= low <= (correct / total if total else 0.5) <= high <= 1.0
    assert (1 - mirror.high, 1 - mirror.low) == pytest.approx((low, high), abs=1e-12)


def test_wilson_covers_the_truth_about_95_times_in_100() -> None:
    # Exact: every outcome of 60 draws weighed by its binomial probability, averaged over many truths.
    coverage = []
    for truth in np.linspace(0.02, 0.98, 97):
        inside = [k for k in range(61) if wilson(k, 60).low <= truth <= wilson(k, 60).high]
        coverage.append(sum(math.comb(60, k) * truth**k * (1 - truth) ** (60 - k) for k in inside))
    assert np.mean(coverage) == pytest.approx(0.952, abs=0.004)
    assert min(coverage) > 0.88


def test_wilson_refuses_more_right_than_there_are() -> None:
    with pytest.raises(ValueError, match="5 correct of 4"):
        wilson(5, 4)


@pytest.mark.parametrize(
    ("degrees", "t_975", "t_995"),
    # Student's table.
    [
        (1, 12.7062, 63.6567),
        (2, 4.3027, 9.9248),
        (5, 2.5706, 4.0321),
        (10, 2.2281, 3.1693),
        (30, 2.0423, 2.7500),
        (120, 1.9799, 2.6174),
        (1_000_000, 1.95997, 2.57583),
    ],
)
def test_t_quantiles_are_those_of_the_table(degrees: int, t_975: float, t_995: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(t_975, abs=5e-5)
    assert t_quantile(0.995, degrees) == pytest.approx(t_995, abs=5e-5)


@given(st.floats(-8, 8))
def test_t_distribution_has_its_closed_forms(t: float) -> None:
    assert t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-12)
    assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-12)


@given(st.floats(0.001, 0.999), st.floats(0.6, 300))
def test_t_quantile_inverts_the_distribution(probability: float, degrees: float) -> None:
    assert t_cdf(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-10)


def test_mean_by_hand() -> None:
    # 1, 2, 3, 4, 5: variance 2.5, standard error sqrt(1/2), t(4) = 2.776445
    got = mean([1, 2, 3, 4, 5])
    assert (got.value, got.standard_error) == pytest.approx((3.0, math.sqrt(0.5)))
    assert got.interval == pytest.approx((3 - 2.776445 * math.sqrt(0.5), 3 + 2.776445 * math.sqrt(0.5)), abs=1e-5)


def test_one_value_shows_nothing_about_the_spread() -> None:
    assert mean([7.0]).interval == (-math.inf, math.inf)
    assert clustered_mean([1.0, 2.0], ["a", "a"]).interval == (-math.inf, math.inf)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_a_mean_needs_finite_values(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        mean(values)


def test_clustered_mean_by_hand() -> None:
    # Clusters (0, 2), (4, 6): mean 3, residual sums -4 and 4; variance 32 / 16 * 2/1 = 4.
    got = clustered_mean([0, 2, 4, 6], ["a", "a", "b", "b"])
    assert (got.value, got.standard_error) == pytest.approx((3.0, 2.0))
    assert got.interval.high == pytest.approx(3 + 2 * 12.70620, abs=1e-4)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=30))
def test_clusters_of_one_are_no_clusters(values: list[float]) -> None:
    alone, clustered = mean(values), clustered_mean(values, range(len(values)))
    assert clustered.standard_error == pytest.approx(alone.standard_error, abs=1e-12)
    assert clustered.interval == pytest.approx(alone.interval, abs=1e-9)


@pytest.mark.slow
def test_clusters_must_be_respected_for_the_coverage_to_hold() -> None:
    generator = np.random.default_rng(3)
    inside_clustered = inside_naive = 0
    clusters = np.repeat(np.arange(40), 4).tolist()
    for _ in range(400):
        values = np.repeat(generator.normal(size=40), 4) + 0.3 * generator.normal(size=160)
        low, high = clustered_mean(values, clusters).interval
        inside_clustered += low <= 0 <= high
        low, high = mean(values).interval
        inside_naive += low <= 0 <= high
    assert 0.92 <= inside_clustered / 400 <= 0.98
    assert inside_naive / 400 < 0.85


def test_paired_bootstrap_is_repeatable_and_close_to_the_t_interval() -> None:
    generator = np.random.default_rng(0)
    before = generator.normal(size=300)
    after = before + 0.2 + 0.5 * generator.normal(size=300)
    first, again = paired_bootstrap(before, after), paired_bootstrap(before, after)
    assert first == again
    assert first != paired_bootstrap(before, after, seed=1)
    assert first.value == pytest.approx(float(np.mean(after - before)))
    assert first.interval == pytest.approx(mean(after - before).interval, abs=0.006)


def test_paired_bootstrap_needs_the_same_items() -> None:
    with pytest.raises(ValueError, match="2 items before and 3 after"):
        paired_bootstrap([1, 2], [1, 2, 3])


def test_bootstrap_in_pieces_draws_all_resamples() -> None:
    # 300 items force several pieces of 6666 rows; the exact standard error of a mean is known.
    values = np.arange(300) % 2
    got = bootstrap_mean(values, resamples=10_000)
    assert got.standard_error == pytest.approx(0.5 / math.sqrt(300), rel=0.03)
    assert got.interval == pytest.approx((0.5 - 1.96 * 0.0289, 0.5 + 1.96 * 0.0289), abs=0.004)


def test_intervals_overlap() -> None:
    assert Interval(0.1, 0.3).overlaps(Interval(0.3, 0.4))
    assert not Interval(0.1, 0.3).overlaps(Interval(0.31, 0.4))
