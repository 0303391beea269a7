"""Rewards of a group compared with each episode counted once, however many rollouts it consists of.

Source: Behavior Priming, arXiv:2510.06534, and its released code: A = (R - mean) / (std + 1e-6), with mean and standard
deviation (ddof 1) over the different episodes of a task; every token of every row of an episode has its A. A single
episode has the mean 0 and the standard deviation 1. An episode is several rollouts where its history was replaced
(`rollouts/summarized`, the fact `Row`); a rollout without that fact is an episode of its own.
"""

import numpy as np

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import per_token
from posttrain.components.rollouts import Row
from posttrain.types import Batch, Credit, Trajectory

EPSILON = 1e-6


@frozen
class ByEpisode(Advantage):
    """Group statistics of episodes."""

    standardize: bool = True
    """Whether the difference from the mean is divided by the standard deviation."""

    @property
    def is_relative(self) -> bool:
        """False: a single episode keeps its reward."""
        return False

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare the episodes of each group."""
        advantage_N = np.zeros(len(batch.return_N), np.float64)
        for group in np.unique(batch.group_N):
            own = np.flatnonzero(batch.group_N == group)
            episodes: dict[int, float] = {}
            for i in own:
                episodes.setdefault(_episode(batch.trajectories[i], int(i)), float(batch.return_N[i]))
            rewards = np.array(list(episodes.values()))
            mean, std = (rewards.mean(), rewards.std(ddof=1)) if len(rewards) > 1 else (0.0, 1.0)
            scale = std + EPSILON if self.standardize else 1.0
            advantage_N[own] = (batch.return_N[own].astype(np.float64) - mean) / scale
        return state, Credit(advantages=per_token(advantage_N, batch))


def _episode(trajectory: Trajectory, place: int) -> int:
    """A name of the episode within its group: its number, or for a rollout of its own a negative one."""
    row = trajectory.fact(Row)
    return -1 - place if row is None else row.episode
