"""Reward minus a group's soft mean, the logarithm of the mean exponential: tau log mean exp(r / tau).

Source: Kimi k1.5, arXiv:2501.12599, section 2.3.2: with pi_i as the sampler, tau log Z is estimated by tau log mean
exp(r / tau) over the rollouts of a task. It lies between the mean reward (tau large) and the highest (tau small), so
that below the best few rollouts have a positive advantage. The report uses the mean reward instead, `group_mean` with
``scale: none``.

Differs: nothing known.
"""

import numpy as np
from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import per_token
from posttrain.types import Batch, Credit


@frozen
class SoftMean(Advantage):
    """Reward minus the soft mean of the group, the same for every token of a trajectory."""

    tau: PositiveFloat = 0.1
    """Temperature in units of reward: that of the objective, `mirror_descent`."""

    @property
    def is_relative(self) -> bool:
        """True: in a group of one the advantage is 0."""
        return True

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare every trajectory's total reward with the soft mean of its group."""
        return_N, advantage_N = batch.return_N, np.zeros(len(batch.return_N))
        for group in np.unique(batch.group_N):
            own = batch.group_N == group
            most = return_N[own].max()
            soft = most + self.tau * np.log(np.exp((return_N[own] - most) / self.tau).mean())
            advantage_N[own] = return_N[own] - soft
        return state, Credit(advantages=per_token(advantage_N, batch))
