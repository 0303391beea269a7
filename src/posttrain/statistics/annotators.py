"""Pairs into numbers, and how reliable each annotator is.

With theta the merits of the items, i shown first, and annotator a:

    P(a prefers i to j) = sigmoid(scale_a (theta_i - theta_j) + offset_a)

Bradley and Terry 1952, doi:10.2307/2334029, with a normal prior on theta (standard deviation `SPREAD`), which keeps
merits finite where comparisons are separated or not connected, and with a scale and an offset of each annotator, as in
Chen et al. 2013, doi:10.1145/2433396.2433420 (CrowdBT), where a scale is a mixture. A negative scale is an annotator
who prefers the worse; 0 is one who draws lots; the offset is a preference for the place. A prior of mean 1 and standard
deviation 1 gives the scales their unit. Their sign is free, so their mean weighed by comparisons is above 0.

Agreement: Cohen 1960, doi:10.1177/001316446002000104 (kappa); Krippendorff's alpha of nominal labels, where some may be
missing.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from posttrain.statistics.logistic import Array, sigmoid

SPREAD: Final = 3.0
"""Of merits, and of offsets, in nats."""
ROUNDS: Final = 200
TOLERANCE: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Comparison:
    """One annotator's preference between two items."""

    first: int
    """The item that was shown first."""
    second: int
    annotator: int
    first_wins: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Merits:
    """What comparisons show of items and annotators."""

    merit_I: Array
    """[I] of each item, in nats of an annotator with scale 1, mean 0."""
    scale_A: Array
    offset_A: Array
    """[A] log-odds of the item that is shown first, where both are equal."""


def merits(
    comparisons: Sequence[Comparison], items: int, annotators: int, *, scales: bool = True, offsets: bool = True
) -> Merits:
    """The fit of largest posterior probability, by turns of items and annotators.

    Without `scales` all annotators have scale 1, without `offsets` none prefers a place: plain Bradley-Terry.
    """
    first_N, second_N, annotator_N, win_N = _columns(comparisons)
    merit_I, scale_A, offset_A = np.zeros(items), np.ones(annotators), np.zeros(annotators)
    for _ in range(ROUNDS):
        before = np.concatenate([merit_I, scale_A, offset_A])
        merit_I = _moved(merit_I, first_N, second_N, win_N, scale_A[annotator_N], offset_A[annotator_N])
        merit_I -= merit_I.mean()
        for a in range(annotators) if scales or offsets else ():
            own = annotator_N == a
            gap_N = merit_I[first_N[own]] - merit_I[second_N[own]]
            x_NK = np.stack([gap_N * scales, np.full(len(gap_N), float(offsets))], 1)
            given_N = gap_N * (not scales)
            start, prior, ridge = np.array([scale_A[a], offset_A[a]]), np.array([1.0, 0.0]), np.array([1.0, SPREAD**-2])
            scale_A[a], offset_A[a] = _newton(x_NK, win_N[own], given_N, start, ridge, prior)
        if np.abs(np.concatenate([merit_I, scale_A, offset_A]) - before).max(initial=0.0) < TOLERANCE:
            break
    sign = -1.0 if np.bincount(annotator_N, minlength=annotators) @ scale_A < 0 else 1.0
    return Merits(merit_I=sign * merit_I, scale_A=sign * scale_A, offset_A=offset_A)


def _moved(merit_I: Array, first_N: Any, second_N: Any, win_N: Array, scale_N: Array, offset_N: Array) -> Array:
    """[I] merits after a Newton step, halved where it overshoots."""
    count, ridge = len(merit_I), SPREAD**-2

    def value(m_I: Array) -> float:
        logit_N = scale_N * (m_I[first_N] - m_I[second_N]) + offset_N
        return float(win_N @ logit_N - np.logaddexp(0, logit_N).sum() - ridge / 2 * m_I @ m_I)

    chance_N = sigmoid(scale_N * (merit_I[first_N] - merit_I[second_N]) + offset_N)
    pull_N, weight_N = scale_N * (win_N - chance_N), scale_N**2 * chance_N * (1 - chance_N)
    slope_I = np.bincount(first_N, pull_N, count) - np.bincount(second_N, pull_N, count) - ridge * merit_I
    cross_II = np.bincount(first_N * count + second_N, weight_N, count * count).reshape(count, count)
    cross_II = cross_II + cross_II.T
    step_I = np.linalg.solve(np.diag(cross_II.sum(1) + ridge) - cross_II, slope_I)
    before = value(merit_I)
    while np.abs(step_I).max(initial=0.0) > TOLERANCE and value(merit_I + step_I) < before:
        step_I = step_I / 2
    return merit_I + step_I


def _columns(comparisons: Sequence[Comparison]) -> tuple[Any, Any, Any, Array]:
    parts = [(j.first, j.second, j.annotator, j.first_wins) for j in comparisons]
    first, second, annotator, win = np.array(parts, np.int64).reshape(-1, 4).T
    return first, second, annotator, win.astype(np.float64)


def _newton(x_NK: Array, y_N: Array, given_N: Array, start_K: Array, ridge_K: Array, prior_K: Array) -> Array:
    """[K] the maximum of the posterior of a logistic regression with a known part of the logits."""

    def value(b_K: Array) -> float:
        logit_N = x_NK @ b_K + given_N
        return float(y_N @ logit_N - np.logaddexp(0, logit_N).sum() - ridge_K @ (b_K - prior_K) ** 2 / 2)

    b_K, best = start_K, value(start_K)
    for _ in range(50):
        chance_N = sigmoid(x_NK @ b_K + given_N)
        slope_K = x_NK.T @ (y_N - chance_N) - ridge_K * (b_K - prior_K)
        curve_KK = x_NK.T @ ((chance_N * (1 - chance_N))[:, None] * x_NK) + np.diag(ridge_K)
        step_K = np.linalg.solve(curve_KK, slope_K)
        while (found := value(b_K + step_K)) < best - 1e-12:
            step_K = step_K / 2
        b_K, best = b_K + step_K, found
        if float(np.abs(step_K).max(initial=0.0)) < 1e-9:
            break
    return b_K


def connected(comparisons: Sequence[Comparison], items: int) -> list[int]:
    """[I] the part that each item is in: a chain of comparisons connects the items of a part, and no others.

    Merits of items in different parts are on scales of their own; only the prior relates them.
    """
    root = list(range(items))

    def of(item: int) -> int:
        while root[item] != item:
            root[item] = root[root[item]]
            item = root[item]
        return item

    for j in comparisons:
        root[of(j.first)] = of(j.second)
    return [of(item) for item in range(items)]


def kappa(labels: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Cohen's kappa of two annotators' labels of the same things; None where chance alone agrees always."""
    if not labels:
        return None
    observed = float(np.mean([a == b for a, b in labels]))
    one, other = Counter(a for a, _ in labels), Counter(b for _, b in labels)
    expected = sum(one[label] * other[label] for label in one) / len(labels) ** 2
    return None if expected >= 1.0 else (observed - expected) / (1 - expected)


def alpha(units: Sequence[Mapping[Hashable, Hashable]]) -> float | None:
    """Krippendorff's alpha of nominal labels, of units with a label by annotator; None where nothing varies.

    Units with fewer than two labels are left out.
    """
    counts = [Counter(unit.values()) for unit in units if len(unit) > 1]
    total, sizes = Counter[Hashable](), [sum(own.values()) for own in counts]
    for own in counts:
        total += own
    n = sum(sizes)
    expected = n * n - sum(c * c for c in total.values())
    if not expected:
        return None
    observed = sum((m * m - sum(c * c for c in own.values())) / (m - 1) for own, m in zip(counts, sizes, strict=True))
    return 1 - (n - 1) * observed / expected
