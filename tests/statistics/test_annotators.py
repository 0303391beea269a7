"""Merits of items from pairs, and scales and offsets of annotators."""

import math
from collections.abc import Hashable

import numpy as np
import pytest

from posttrain.statistics.annotators import SPREAD, Comparison, alpha, connected, kappa, merits
from posttrain.statistics.logistic import sigmoid

SCALES, OFFSETS = np.array([1.2, 1.0, 0.9, 0.0, -1.0]), np.array([0.0, 0.0, 2.0, 0.0, 0.0])


def planted(seed: int, count: int, items: int = 30) -> tuple[np.ndarray, list[Comparison]]:
    """True merits, and comparisons by two sound annotators, one with an offset, one at random, one reversed."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=items) * 1.5
    found = []
    for _ in range(count):
        i, j = map(int, rng.choice(items, 2, replace=False))
        a = int(rng.integers(len(SCALES)))
        wins = rng.random() < sigmoid(SCALES[a] * (true[i] - true[j]) + OFFSETS[a])
        found.append(Comparison(i, j, annotator=a, first_wins=bool(wins)))
    return true, found


def tau(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's."""
    i, j = np.triu_indices(len(a), 1)
    return float(np.mean(np.sign(a[i] - a[j]) * np.sign(b[i] - b[j])))


def test_scales_and_offsets_of_planted_annotators_are_found() -> None:
    true, comparisons = planted(0, 1500)
    found = merits(comparisons, 30, 5)
    plain = merits(comparisons, 30, 5, scales=False, offsets=False)
    assert tau(found.merit_I, true) > tau(plain.merit_I, true) + 0.05
    assert np.abs(found.scale_A / found.scale_A[0] - SCALES / SCALES[0]).max() < 0.3
    assert np.abs(found.offset_A - OFFSETS).max() < 0.4


def test_two_items_by_hand() -> None:
    comparisons = [Comparison(0, 1, 0, True)] * 3 + [Comparison(1, 0, 0, True)]
    found = merits(comparisons, 2, 1, scales=False, offsets=False)
    gap = found.merit_I[0] - found.merit_I[1]
    # The slope of the posterior in either merit is 0: 3 - 4 P - merit / SPREAD^2.
    assert 3 - 4 / (1 + math.exp(-gap)) - gap / 2 / SPREAD**2 == pytest.approx(0, abs=1e-4)


def test_separated_and_unconnected_items_stay_finite() -> None:
    found = merits([Comparison(0, 1, 0, True)] * 50 + [Comparison(2, 3, 1, False)], 5, 2)
    assert np.isfinite(found.merit_I).all() and found.merit_I[0] > found.merit_I[1]
    assert found.merit_I[3] > found.merit_I[2]
    empty = merits([], 2, 1)
    assert empty.merit_I.tolist() == [0, 0] and empty.scale_A.tolist() == [1]


def test_chains_of_comparisons_connect() -> None:
    part = connected([Comparison(0, 1, 0, True), Comparison(2, 1, 0, True), Comparison(3, 4, 0, True)], 6)
    assert part[0] == part[1] == part[2] and part[3] == part[4] and len({part[0], part[3], part[5]}) == 3


def test_swapping_all_places_negates_offsets_only() -> None:
    _, comparisons = planted(1, 400)
    swapped = [Comparison(j.second, j.first, j.annotator, not j.first_wins) for j in comparisons]
    one, other = merits(comparisons, 30, 5), merits(swapped, 30, 5)
    assert np.allclose(one.merit_I, other.merit_I, atol=1e-2) and np.allclose(one.offset_A, -other.offset_A, atol=1e-2)


def test_kappa_and_alpha_by_hand() -> None:
    labels = [("a", "a")] * 4 + [("b", "b")] * 4 + [("a", "b"), ("b", "a")]
    assert kappa(labels) == pytest.approx((0.8 - 0.5) / 0.5)
    assert kappa([]) is None and kappa([("a", "a")]) is None
    units: list[dict[Hashable, Hashable]] = [{1: x, 2: y} for x, y in labels]
    # Twenty labels, half of each: expected n^2 - 10^2 - 10^2 = 200; observed 2 units of 4 - 2 = 2 each.
    assert alpha(units) == pytest.approx(1 - 19 * 4 / 200)
    assert alpha([{1: "a"}, {1: "a", 2: "a"}]) is None
