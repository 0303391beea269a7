"""Novelty of vectors among others by their leverage, and small sets of them that differ.

Source: Representation-based exploration, arXiv:2510.11686, sections 3 and 4, and its recipe (verl-project/verl-recipe
at 48ea0a79, rep_exp). N vectors of D numbers, less their mean. In float64.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Reals = NDArray[np.float64]


def centered(vectors: ArrayLike) -> Reals:
    """[N, D] vectors less their mean; a vector that is not finite makes all 0, since nothing is known of the set."""
    x_ND = np.asarray(vectors, np.float64)
    return x_ND - x_ND.mean(0) if len(x_ND) and np.isfinite(x_ND).all() else np.zeros_like(x_ND)


def leverage(vectors: ArrayLike, ridge: float, *, leave_one_out: bool = False) -> Reals:
    """[N] h' C^-1 h with C = ridge I + the sum of h h' over all vectors, in [0, 1); without its own one, in
    [0, |h|^2 / ridge].

    Equal vectors have 0. With C without h, h' C^-1 h is b / (1 - b), b being that with it.
    """
    x_ND = centered(vectors)
    if not len(x_ND):
        return np.zeros(0)
    # (ridge I + X X')^-1 is N x N, which is smaller than D x D for a group.
    gram_NN = x_ND @ x_ND.T
    with_own_N = np.diag(np.linalg.solve(gram_NN + ridge * np.eye(len(x_ND)), gram_NN)).clip(0.0, None)
    return np.asarray(with_own_N / (1.0 - with_own_N).clip(1e-12, None) if leave_one_out else with_own_N)


def coreset(vectors: ArrayLike, count: int, *, ridge: float = 1.0, first: int = 0) -> list[int]:
    """Places of `count` vectors, each the one that is farthest from those before it: the largest h' L h, where L begins
    at I / ridge and loses (L h h' L) / (1 + h' L h) with every choice. Of equals the first; `first` is the first
    choice.

    A vector that was chosen is not left out by itself; where it would be chosen again, nothing is new, and the next
    place that is left is taken.
    """
    x_ND = centered(vectors)
    chosen, left = [first], set(range(len(x_ND))) - {first}
    projected_ND = x_ND / ridge  # rows are L h
    while len(chosen) < min(count, len(x_ND)):
        h_D, l_D = x_ND[chosen[-1]], projected_ND[chosen[-1]].copy()
        projected_ND = projected_ND - np.outer(x_ND @ l_D / (1.0 + h_D @ l_D), l_D)
        bonus_N = (x_ND * projected_ND).sum(1)
        best = int(bonus_N.argmax())
        chosen.append(best if best in left else min(left, key=lambda i: (-bonus_N[i], i)))
        left.discard(chosen[-1])
    return chosen


def random_calls(right: int, pool: int) -> float:
    """Expected calls of a verifier until the first correct of `pool` texts in random order: (N + 1) / (c + 1)."""
    return (pool + 1) / (right + 1)
