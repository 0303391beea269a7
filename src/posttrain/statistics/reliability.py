"""Reliability of a reward after selection within groups: R^2 against the true score.

Source: Shen and Zhang 2024, arXiv:2409.06957, section 4: rollouts of a group, ranked by reward, are kept with
probabilities that depend on the rank alone; the score is fitted by a line in the reward over what is kept, and
R^2 = 1 - SSE / SST. The paper fits means of rollouts with similar rewards; it does not state the number of such bins.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rule = Literal["none", "best", "best_random", "best_worst"]
RULES: Final[Mapping[Rule, str]] = MappingProxyType(
    {
        "none": "all of them",
        "best": "the best",
        "best_random": "the best and a random other",
        "best_worst": "the best and the worst",
    }
)


def chances(rewards: ArrayLike, rule: Rule) -> NDArray[np.float64]:
    """[N] probability that each rollout of a group is drawn; of equal rewards the first ranks higher."""
    reward_N = np.asarray(rewards, np.float64)
    count = len(reward_N)
    if rule == "none" or count == 1:
        return np.full(count, 1.0 / count)
    order = np.argsort(-reward_N, kind="stable")
    chance_N = np.zeros(count)
    if rule == "best":
        chance_N[order[0]] = 1.0
    elif rule == "best_random":
        chance_N[:] = 0.5 / (count - 1)
        chance_N[order[0]] = 0.5
    else:
        chance_N[order[[0, -1]]] = 0.5
    return chance_N


def reliability(
    rewards: Sequence[ArrayLike], scores: Sequence[ArrayLike], rule: Rule, bins: int | None = 20
) -> float | None:
    """R^2 of the score on the reward over groups of rollouts, one row per group; None where it is not defined.

    With `bins`, rollouts are sorted by reward into as many bins of equal probability, and the line is fitted to the
    bins' means. A rollout across a border is split between both bins. None takes the rollouts themselves.
    """
    weight_N = np.concatenate([np.zeros(0), *(chances(row, rule) for row in rewards)])
    x_N = np.concatenate([np.zeros(0), *(np.asarray(row, np.float64) for row in rewards)])
    y_N = np.concatenate([np.zeros(0), *(np.asarray(row, np.float64) for row in scores)])
    kept_N = weight_N > 0
    weight_N, x_N, y_N = weight_N[kept_N], x_N[kept_N], y_N[kept_N]
    if bins is not None and len(x_N):
        order = np.argsort(x_N, kind="stable")
        ends_N = np.cumsum(weight_N[order]) * bins / weight_N.sum()
        edges_B = np.arange(bins)[:, None]
        share_BN = np.clip(ends_N - edges_B, 0, 1) - np.clip(np.append(0.0, ends_N[:-1]) - edges_B, 0, 1)
        weight_N, x_N, y_N = np.ones(bins), share_BN @ x_N[order], share_BN @ y_N[order]
    return _r_squared(x_N, y_N, weight_N)


def _r_squared(x_N: NDArray[np.float64], y_N: NDArray[np.float64], weight_N: NDArray[np.float64]) -> float | None:
    """Share of the weighted variance of y that a line in x explains; None where x or y does not vary."""
    if not len(x_N):
        return None
    share_N = weight_N / weight_N.sum()
    dx_N, dy_N = x_N - share_N @ x_N, y_N - share_N @ y_N
    xx, xy, yy = share_N @ dx_N**2, share_N @ (dx_N * dy_N), share_N @ dy_N**2
    if xx <= 1e-24 or yy <= 1e-24:
        return None
    return float(xy**2 / (xx * yy))
