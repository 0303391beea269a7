"""Logistic regression with standard errors for clustered rows, score tests of further columns, and Platt's calibration.

A ridge of `RIDGE` keeps coefficients finite where the outcomes are separated: half its square, in units of one row.
Rows of a cluster, such as a pair that is shown in both orders, may depend on each other: errors are those of the
sandwich with clusters (Liang and Zeger 1986). Outcomes may be shares, a tie being one half. The p-value of a
coefficient is the larger of Wald's with these errors and of the likelihood ratio: where outcomes are separated, errors
are too small.

Platt: Platt 1999, *Probabilistic outputs for support vector machines*, with his targets (n + 1) / (n + 2) in place of
1, which keep a small sample from a certainty.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posttrain.statistics.intervals import Interval, t_cdf, t_quantile

Array = np.ndarray[Any, np.dtype[np.float64]]
RIDGE = 0.1
STEPS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One coefficient."""

    value: float
    """In nats of log-odds by unit of its column."""
    standard_error: float
    p_value: float
    """Two-sided: of Student's t with one degree of freedom less than clusters, or of the likelihood ratio if larger."""
    clusters: int

    def interval(self, level: float = 0.95) -> Interval:
        """Confidence interval of the coefficient."""
        reach = t_quantile(0.5 + level / 2, self.clusters - 1) * self.standard_error
        return Interval(self.value - reach, self.value + reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted regression: what tests of further columns need."""

    effects: Sequence[Effect]
    likelihood: float
    """Its logarithm, less the ridge."""
    chance_N: Array
    """[N] fitted probability of each row."""
    x_NK: Array
    y_N: Array
    cluster_N: np.ndarray
    """[N] number of the cluster, from 0."""

    def test(self, column_N: Array) -> float:
        """Two-sided p-value of a score test that adds a column; 1 for one that the others already hold."""
        weight_N = self.chance_N * (1 - self.chance_N)
        bread_KK = _curvature(self.x_NK, self.chance_N)
        own_N = column_N - self.x_NK @ np.linalg.solve(bread_KK, self.x_NK.T @ (weight_N * column_N))
        if float(np.abs(own_N).max(initial=0.0)) < 1e-9:
            return 1.0
        sums_C = np.bincount(self.cluster_N, weights=own_N * (self.y_N - self.chance_N))
        size = float(np.sqrt((sums_C**2).sum()))
        return 1.0 if size == 0.0 else 2 * t_cdf(-abs(float(sums_C.sum())) / size, max(1, len(sums_C) - 1))


def regress(x_NK: Array, y_N: Array, clusters: Sequence[Hashable]) -> Fit:
    """Fit P(y = 1) = sigmoid(x b). Raises `ValueError` without rows, with one cluster, or for lengths that differ."""
    if not len(y_N) or len(x_NK) != len(y_N) or len(clusters) != len(y_N):
        raise ValueError(f"{len(x_NK)} rows, {len(y_N)} outcomes and {len(clusters)} clusters; one each is needed")
    names = {name: number for number, name in enumerate(dict.fromkeys(clusters))}
    if len(names) < 2:
        raise ValueError("the rows are of one cluster; errors need at least two")
    cluster_N = np.array([names[name] for name in clusters])
    b_K = _maximum(x_NK, y_N)
    chance_N = sigmoid(x_NK @ b_K)
    bread_KK = np.linalg.inv(_curvature(x_NK, chance_N))
    score_CK = np.zeros((len(names), x_NK.shape[1]))
    np.add.at(score_CK, cluster_N, (y_N - chance_N)[:, None] * x_NK)
    meat_KK = score_CK.T @ score_CK * len(names) / (len(names) - 1)
    error_K = np.sqrt(np.maximum(np.diag(bread_KK @ meat_KK @ bread_KK), 0.0))
    likelihood = _likelihood(x_NK, y_N, b_K, RIDGE)
    without_K = [_largest(np.delete(x_NK, place, 1), y_N) for place in range(x_NK.shape[1])]
    ratio_K = [2 * max(0.0, likelihood - without) for without in without_K]
    effects = [
        _effect(float(b), float(error), ratio, len(names))
        for b, error, ratio in zip(b_K, error_K, ratio_K, strict=True)
    ]
    return Fit(effects=effects, likelihood=likelihood, chance_N=chance_N, x_NK=x_NK, y_N=y_N, cluster_N=cluster_N)


def _effect(value: float, error: float, ratio: float, clusters: int) -> Effect:
    wald = 2 * t_cdf(-abs(value) / error, clusters - 1) if error > 1e-12 else float(abs(value) < 1e-9)
    p_value = max(wald, math.erfc(math.sqrt(ratio / 2)))
    return Effect(value=value, standard_error=error, p_value=p_value, clusters=clusters)


@dataclass(frozen=True, slots=True)
class Isotonic:
    """Probabilities that never fall as numbers rise: linear between the fitted numbers, constant beyond them."""

    number_K: Array
    chance_K: Array

    def chance(self, numbers: Any) -> Array:
        """The probability of each number."""
        return np.interp(np.asarray(numbers, np.float64), self.number_K, self.chance_K)


def isotonic(numbers: Sequence[float], outcomes: Sequence[bool], *, symmetric: bool = False) -> Isotonic:
    """Least squares among the functions that do not fall, by pooling neighbours that do (Ayer et al. 1955).

    A `symmetric` one is fitted to margins in both orders. Raises `ValueError` as `platt`, but not for one class.
    """
    x_N, y_N = np.asarray(numbers, np.float64), np.asarray(outcomes, np.float64)
    if not len(x_N) or len(x_N) != len(y_N) or not np.isfinite(x_N).all():
        raise ValueError(f"{len(x_N)} numbers, all of them finite, are needed with an outcome each; got {len(y_N)}")
    if symmetric:
        x_N, y_N = np.concatenate([x_N, -x_N]), np.concatenate([y_N, 1 - y_N])
    number_K, place_N = np.unique(x_N, return_inverse=True)
    blocks: list[tuple[float, float, int]] = []
    """Sum of outcomes, how many, and numbers of each block."""
    for total, count in zip(np.bincount(place_N, y_N), np.bincount(place_N), strict=True):
        blocks.append((float(total), float(count), 1))
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            last = blocks.pop()
            blocks[-1] = tuple(a + b for a, b in zip(blocks[-1], last, strict=True))  # type: ignore[assignment]
    return Isotonic(number_K, np.repeat([total / count for total, count, _ in blocks], [n for _, _, n in blocks]))


def _largest(x_NK: Array, y_N: Array) -> float:
    """The largest penalized likelihood."""
    return _likelihood(x_NK, y_N, _maximum(x_NK, y_N), RIDGE) if x_NK.shape[1] else -len(y_N) * math.log(2)


def _maximum(x_NK: Array, y_N: Array, ridge: float = RIDGE) -> Array:
    """[K] the coefficients of largest penalized likelihood, by Newton's steps that are halved where they overshoot."""
    b_K = np.zeros(x_NK.shape[1])
    best = _likelihood(x_NK, y_N, b_K, ridge)
    for _ in range(STEPS):
        chance_N = sigmoid(x_NK @ b_K)
        step_K = np.linalg.solve(_curvature(x_NK, chance_N, ridge), x_NK.T @ (y_N - chance_N) - ridge * b_K)
        while (found := _likelihood(x_NK, y_N, b_K + step_K, ridge)) < best - 1e-9:
            step_K = step_K / 2
        b_K, best = b_K + step_K, found
        if float(np.abs(step_K).max(initial=0.0)) < 1e-10:
            break
    return b_K


def _likelihood(x_NK: Array, y_N: Array, b_K: Array, ridge: float) -> float:
    logit_N = x_NK @ b_K
    return float(y_N @ logit_N - np.logaddexp(0.0, logit_N).sum() - ridge / 2 * b_K @ b_K)


def _curvature(x_NK: Array, chance_N: Array, ridge: float = RIDGE) -> Array:
    weight_N = chance_N * (1 - chance_N)
    return np.asarray(x_NK.T @ (weight_N[:, None] * x_NK) + ridge * np.eye(x_NK.shape[1]))


def sigmoid(x: Any) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * np.asarray(x, np.float64))))


@dataclass(frozen=True, slots=True)
class Platt:
    """Probabilities from numbers: sigmoid(slope * number + offset)."""

    slope: float
    offset: float = 0.0

    def chance(self, numbers: Any) -> Array:
        """The probability of each number."""
        return sigmoid(self.slope * np.asarray(numbers, np.float64) + self.offset)


def platt(numbers: Sequence[float], outcomes: Sequence[bool], *, symmetric: bool = False) -> Platt:
    """Fit a calibration. A `symmetric` one has no offset: of a margin, whose sign changes with the order of a pair.

    Raises `ValueError` for one class of outcomes, unless symmetric, and for numbers that are not finite.
    """
    x_N, y_N = np.asarray(numbers, np.float64), np.asarray(outcomes, np.float64)
    if not len(x_N) or len(x_N) != len(y_N) or not np.isfinite(x_N).all():
        raise ValueError(f"{len(x_N)} numbers, all of them finite, are needed with an outcome each; got {len(y_N)}")
    if symmetric:
        # Each pair in both orders: as many of each outcome, whatever the order in the data.
        x_N, y_N = np.concatenate([x_N, -x_N]), np.concatenate([y_N, 1 - y_N])
    right, wrong = float(y_N.sum()), float(len(y_N) - y_N.sum())
    if not (right and wrong):
        raise ValueError("all outcomes are of one class; a calibration needs both")
    target_N = np.where(y_N == 1, (right + 1) / (right + 2), 1 / (wrong + 2))
    scale = float(np.abs(x_N).max()) or 1.0
    columns = [x_N / scale] if symmetric else [x_N / scale, np.ones(len(x_N))]
    slope, *rest = _maximum(np.stack(columns, 1), target_N, ridge=1e-6)
    return Platt(float(slope) / scale, float(rest[0]) if rest else 0.0)
