"""Product quantization: a vector as a few small numbers, one of each part of its dimensions.

Source: Jégou et al. 2011, "Product quantization for nearest neighbor search", with Lloyd's k-means in each part.
"""

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Codes = NDArray[np.int64]

ROUNDS = 25
"""Rounds of k-means at most."""


def product_codes(vector_ND: Reals, parts: int, clusters: int, seed: int) -> Codes:
    """[N, parts] the cluster of each part of each vector; D is divided into `parts` as equal as can be.

    Vectors may have the same code. With as many clusters as distinct parts, every one has its own.
    """
    pieces = np.array_split(np.asarray(vector_ND, np.float64), parts, axis=1)
    own = [kmeans(piece, clusters, np.random.default_rng([seed, part])) for part, piece in enumerate(pieces)]
    return np.stack(own, axis=1)


def kmeans(point_ND: Reals, clusters: int, rng: np.random.Generator) -> Codes:
    """[N] cluster of each point. Centers begin at distinct points, far from one another (k-means++)."""
    distinct = np.unique(point_ND, axis=0)
    count = min(clusters, len(distinct))
    center_KD = distinct[[rng.integers(len(distinct))]]
    while len(center_KD) < count:
        nearest_N = _squared(distinct, center_KD).min(1)
        chosen = rng.choice(len(distinct), p=nearest_N / nearest_N.sum())
        center_KD = np.concatenate([center_KD, distinct[[chosen]]])
    code_N = _squared(point_ND, center_KD).argmin(1)
    for _ in range(ROUNDS):
        means = [point_ND[code_N == k].mean(0) if (code_N == k).any() else center_KD[k] for k in range(count)]
        center_KD = np.array(means)
        before, code_N = code_N, _squared(point_ND, center_KD).argmin(1)
        if (before == code_N).all():
            break
    return np.asarray(code_N, np.int64)


def _squared(point_ND: Reals, center_KD: Reals) -> Reals:
    """[N, K] squared distances."""
    return np.asarray(((point_ND[:, None] - center_KD[None]) ** 2).sum(2), np.float64)
