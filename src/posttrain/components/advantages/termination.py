"""Reward less the mean reward of those that answered at once, after the prefix that all of a group share.

Source: Meta Reinforcement Fine-Tuning (MRT), arXiv:2503.07572: the progress of an episode is J after it minus J before
it, with J the success of an answer that is forced there. The rollouts of a group that were forced to answer right after
the prefix (`rollouts/prefix_groups`) estimate J before it, and

    A = alpha (R - mean R of those) + outcome (R - mean R of the group)

The README of the release replaces the mean of the group by that of termination (``outcome: 0``); the paper adds the
progress to the outcome's loss (``outcome: 1``). The sum of all progress along one trace is J at its end minus J at its
start, so that as one number of a trace it is no more than an outcome; with a group for each prefix it is dense.

With `scale` the advantage is divided by the standard deviation of the group (with the unbiased variance). A group
without such rollouts has its own mean as both baselines.
"""

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import centered, group_std, per_token
from posttrain.components.rollouts import Continued
from posttrain.types import Batch, Credit, Trajectory

SMALLEST = 1e-6
"""Added to the standard deviation, in units of reward."""


@frozen
class Termination(Advantage):
    """Progress against answering at once."""

    alpha: NonNegativeFloat = 1.0
    """Weight of the progress."""
    outcome: NonNegativeFloat = 0.0
    """Weight of the reward against the mean of the group."""
    scale: Literal["none", "group"] = "none"
    """Whether the standard deviation of the group divides the advantage."""

    @property
    def is_relative(self) -> bool:
        """True."""
        return True

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Metrics: the mean reward of those that answered at once, and the mean progress of the others."""
        return_N, group_N = batch.return_N, batch.group_N
        once_N = np.array([_at_once(t) for t in batch.trajectories], np.bool_)
        base_N = return_N - centered(return_N, group_N)
        for group in range(len(batch.groups)):
            own_N = group_N == group
            if (own_N & once_N).any():
                base_N[own_N] = return_N[own_N & once_N].mean()
        advantage_N = self.alpha * (return_N - base_N) + self.outcome * centered(return_N, group_N)
        if self.scale == "group":
            std_N = group_std(return_N, group_N)
            advantage_N = np.where(std_N > 0, advantage_N / (std_N + SMALLEST), 0.0)
        metrics = {}
        if once_N.any() and not once_N.all():
            metrics = {
                "at_once": float(return_N[once_N].mean()),
                "progress": float((return_N - base_N)[~once_N].mean()),
            }
        return state, Credit(advantages=per_token(advantage_N, batch), metrics=metrics)


def _at_once(trajectory: Trajectory) -> bool:
    fact = trajectory.fact(Continued)
    return fact is not None and fact.at_once
