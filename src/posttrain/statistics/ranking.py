"""Ranking quality of a score: area under the ROC curve with its interval, and thresholds.

Sources: Hanley and McNeil 1982, doi:10.1148/radiology.143.1.7063747 (variance of the area); Newcombe 2006,
doi:10.1002/sim.2324, method 5 (its interval: the areas whose own standard error, with both sample sizes in the formula
replaced by their mean, reaches to the one that was measured). Unlike an interval from ranks or resampling it has a
width at an area of 1, where a small sample has no errors.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posttrain.statistics.calibration import auroc
from posttrain.statistics.intervals import Estimate, Interval, normal_quantile


def auc(positives: ArrayLike, negatives: ArrayLike, level: float = 0.95) -> Estimate:
    """Probability that a positive has a higher score than a negative, ties half; at least one of each is needed."""
    high_N, low_N = _scores(positives), _scores(negatives)
    area = auroc([*high_N, *low_N], [True] * len(high_N) + [False] * len(low_N))
    assert area is not None, "there is one of each"
    z = normal_quantile(0.5 + level / 2)
    return Estimate(
        value=area,
        standard_error=_standard_error(area, len(high_N), len(low_N)),
        interval=Interval(
            1.0 - _upper(1.0 - area, len(low_N), len(high_N), z), _upper(area, len(high_N), len(low_N), z)
        ),
    )


def shuffled_auc(
    positives: ArrayLike, negatives: ArrayLike, *, shuffles: int = 1000, seed: int = 0
) -> tuple[float, Interval, float]:
    """The area with random labels: mean, middle 95 %, and the share that is at least the measured area.

    The last is a one-sided p-value of the permutation test, with the measured area counted among the shuffles.
    """
    high_N, low_N = _scores(positives), _scores(negatives)
    rank_N = _ranks(np.concatenate([high_N, low_N]))
    count, pairs = len(high_N), len(high_N) * len(low_N)
    generator = np.random.Generator(np.random.Philox(seed))

    def area(rank_K: NDArray[np.float64]) -> float:
        return float((rank_K.sum() - count * (count + 1) / 2) / pairs)

    areas = np.array([area(generator.permutation(rank_N)[:count]) for _ in range(shuffles)])
    low, high = np.quantile(areas, [0.025, 0.975])
    p = (1 + int((areas >= area(rank_N[:count]) - 1e-12).sum())) / (shuffles + 1)
    return float(areas.mean()), Interval(float(low), float(high)), p


def best_f1(positives: ArrayLike, negatives: ArrayLike) -> float:
    """Largest F1 of any threshold: harmonic mean of precision and recall."""
    hits_K, false_K = _curve(positives, negatives)
    return float(np.max(2 * hits_K / (hits_K + false_K + hits_K[-1])))


def youden(positives: ArrayLike, negatives: ArrayLike) -> float:
    """Largest difference of true and false positive rate of any threshold, in [0, 1]."""
    hits_K, false_K = _curve(positives, negatives)
    return float(np.max(hits_K / hits_K[-1] - false_K / false_K[-1]))


def true_positive_rate(positives: ArrayLike, negatives: ArrayLike, *, at: float = 0.05) -> float:
    """Largest true positive rate of a threshold whose false positive rate is at most `at`."""
    hits_K, false_K = _curve(positives, negatives)
    return float(np.max((hits_K / hits_K[-1])[false_K / false_K[-1] <= at]))


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float | None:
    """Spearman's rank correlation, ties at their mean rank; None where either is constant or has one value."""
    rank_N, other_N = _ranks(_scores(first)), _ranks(_scores(second))
    if rank_N.std() == 0.0 or other_N.std() == 0.0:
        return None
    return float(np.corrcoef(rank_N, other_N)[0, 1])


def _standard_error(area: float, positives: float, negatives: float) -> float:
    """Standard error of an area, by Hanley and McNeil."""
    spread = 1 + (negatives - 1) * (1 - area) / (2 - area) + (positives - 1) * area / (1 + area)
    return math.sqrt(max(area * (1 - area) * spread, 0.0) / (positives * negatives))


def _upper(area: float, positives: int, negatives: int, z: float) -> float:
    """The largest area that is z of its own standard errors above the measured one, found by halving."""
    mean = (positives + negatives) / 2
    low, high = area, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        spread = 1 + (mean - 1) * ((1 - middle) / (2 - middle) + middle / (1 + middle))
        error = math.sqrt(middle * (1 - middle) * spread / (positives * negatives))
        low, high = (middle, high) if middle - area < z * error else (low, middle)
    return high


def _curve(positives: ArrayLike, negatives: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[K] true and false positives at every threshold from above the highest score to the lowest."""
    high_N, low_N = _scores(positives), _scores(negatives)
    thresholds = np.unique(np.concatenate([high_N, low_N]))[::-1]
    hits = [0, *(int((high_N >= t).sum()) for t in thresholds)]
    false = [0, *(int((low_N >= t).sum()) for t in thresholds)]
    return np.array(hits, np.int64), np.array(false, np.int64)


def _ranks(x_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """[N] ranks from 1, ties at their mean."""
    _, inverse, counts = np.unique(x_N, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    mean: NDArray[np.float64] = (ends - (counts - 1) / 2)[inverse]
    return mean


def _scores(values: ArrayLike) -> NDArray[np.float64]:
    """[N] finite float64, at least one."""
    x_N = np.asarray(values, np.float64)
    if x_N.ndim != 1 or not len(x_N) or not np.isfinite(x_N).all():
        raise ValueError(f"got scores of shape {x_N.shape}; at least one finite number of each kind is needed")
    return x_N
