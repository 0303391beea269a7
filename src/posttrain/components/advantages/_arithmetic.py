"""Arithmetic of advantage estimators: group statistics, values per token, whitening.

Rewards are float32 and sums of them float64, so that the mean of equal rewards is that reward exactly, and a group
of equal rewards gets exact zeros.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from posttrain.types import Batch, FloatArray, IntArray

Reals = NDArray[np.float64]

VARIANCE_FLOOR = 1e-8
"""Added to a variance before the square root that whitening divides by."""


def centered(x_N: Reals, group_N: IntArray) -> Reals:
    """[N] each value minus the mean of its group."""
    mean_G = np.bincount(group_N, weights=x_N) / np.maximum(np.bincount(group_N), 1)
    return x_N - mean_G[group_N]


def group_std(x_N: Reals, group_N: IntArray) -> Reals:
    """[N] standard deviation of each one's group, with the unbiased variance; 0 for a group of one."""
    squares_G = np.bincount(group_N, weights=centered(x_N, group_N) ** 2)
    return np.sqrt(squares_G / np.maximum(np.bincount(group_N) - 1, 1))[group_N]


def per_token(x_N: Reals, batch: Batch) -> tuple[FloatArray, ...]:
    """Give every trained token of a trajectory the trajectory's value."""
    return tuple(np.full(len(r), x, np.float32) for x, r in zip(x_N, batch.token_rewards, strict=True))


def whitened(parts: Sequence[Reals]) -> tuple[FloatArray, ...]:
    """Subtract the mean over all tokens of all trajectories and divide by their standard deviation.

    The variance is the unbiased one plus `VARIANCE_FLOOR`; equal tokens, or a single one, give 0.
    """
    flat_T = np.concatenate([np.zeros(0), *parts])
    one_group_T = np.zeros(len(flat_T), np.int64)
    scale_T = np.sqrt(group_std(flat_T, one_group_T) ** 2 + VARIANCE_FLOOR)
    white_T = (centered(flat_T, one_group_T) / scale_T).astype(np.float32)
    return tuple(np.split(white_T, np.cumsum([len(part) for part in parts])[:-1])) if parts else ()
