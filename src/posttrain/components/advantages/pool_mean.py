"""Reinforce-Ada: reward minus the mean of all rollouts that the group was chosen from.

Source: Xiong et al. 2025 (Reinforce-Ada), arXiv:2510.04996, and its released code. More rollouts give a better baseline
than the few that are trained on. The advantages of a balanced group do not sum to zero: with a success rate p, half
correct and half incorrect rollouts have a mean advantage of 1/2 - p.

Without `itself`, the baseline is the mean of the others, as in RLOO: with a pool of k, k / (k - 1) times the
difference.

A pool of one has mean 0 and std 1. A group from which nothing was dropped is its own pool.

Differs: the release takes mean and std of the pool from the share of rewards above a threshold. Here they are those of
the scores themselves, which is the same for scores of 0 and 1. The baseline has scores only: penalties in the reward
and rewards of turns are in the advantage and not in the baseline.
"""

from typing import Literal

import numpy as np

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals, per_token
from posttrain.types import Batch, Credit

SMALLEST = 1e-6
"""Lower bound of the std of a pool, and the epsilon that is added to it, in units of reward."""


@frozen
class PoolMean(Advantage):
    """Reward minus pool mean, the same for every token of a trajectory."""

    scale: Literal["none", "pool"] = "none"
    """Whether the pool's standard deviation (with the unbiased variance) divides the difference; the released runs do
    not divide."""
    itself: bool = True
    """Whether the rollout itself counts in the mean of its pool."""

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare every trajectory's total reward with the pool that its group was chosen from."""
        own = np.split(batch.return_N, np.cumsum([len(group) for group in batch.groups])[:-1])
        # Rounded as rewards are, so that a pool of equal scores gives exact zeros.
        pools = [
            np.asarray(g.pool, np.float32).astype(np.float64) if g.pool else r
            for g, r in zip(batch.groups, own, strict=True)
        ]
        parts = [self._advantages(r, pool) for r, pool in zip(own, pools, strict=True)]
        return state, Credit(advantages=per_token(np.concatenate([np.zeros(0), *parts]), batch))

    def _advantages(self, reward_N: Reals, pool: Reals) -> Reals:
        """[N] advantages of one group."""
        mean, std = (pool.mean(), pool.std(ddof=1)) if len(pool) > 1 else (0.0, 1.0)
        scale = max(std, SMALLEST) + SMALLEST if self.scale == "pool" else 1.0
        others = 1.0 if self.itself or len(pool) < 2 else len(pool) / (len(pool) - 1)
        return np.asarray(others * (reward_N - mean) / scale)
