"""Interquartile mean with a stratified bootstrap interval.

Source: Agarwal et al. 2021, arXiv:2108.13264, section 4. Scores are a matrix of runs by tasks (strata). The mean is
taken over the middle half of all scores: a quarter of them, rounded down, is left out at either end. The bootstrap
draws runs with replacement within each task, and the interval holds the middle of the resampled means.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posttrain.statistics.intervals import Estimate, Interval


def interquartile_mean(scores: ArrayLike) -> float:
    """Mean of the middle half of all scores, of whatever shape."""
    x_N = np.sort(np.asarray(scores, np.float64).reshape(-1))
    if not len(x_N) or not np.isfinite(x_N).all():
        raise ValueError(f"got {len(x_N)} scores; some finite ones are needed")
    return float(_middle(x_N[None])[0])


def stratified_interquartile_mean(
    scores: ArrayLike, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Estimate:
    """Interquartile mean of [runs, tasks] (or [runs] of one task), with the percentile interval."""
    x_RK = np.asarray(scores, np.float64)
    x_RK = x_RK[:, None] if x_RK.ndim == 1 else x_RK
    center = interquartile_mean(x_RK)
    runs, strata = x_RK.shape
    generator = np.random.Generator(np.random.Philox(seed))
    drawn_BRK = generator.integers(runs, size=(resamples, runs, strata))
    means_B = _middle(np.sort(x_RK[drawn_BRK, np.arange(strata)].reshape(resamples, -1), axis=1))
    low, high = np.quantile(means_B, [0.5 - level / 2, 0.5 + level / 2])
    return Estimate(value=center, standard_error=float(means_B.std(ddof=1)), interval=Interval(float(low), float(high)))


def _middle(sorted_BN: NDArray[np.float64]) -> NDArray[np.float64]:
    """[B] means of each row without a quarter of its values, rounded down, at either end."""
    cut = sorted_BN.shape[1] // 4
    means_B: NDArray[np.float64] = sorted_BN[:, cut : sorted_BN.shape[1] - cut].mean(axis=1)
    return means_B
