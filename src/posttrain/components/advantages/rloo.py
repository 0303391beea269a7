"""RLOO: each reward minus the mean of the other rewards of its group.

Source: Ahmadian et al. 2024, arXiv:2402.14740, after the leave-one-out estimator of Kool et al. 2019. The baseline does
not depend on the sample that it is subtracted from, so the gradient is unbiased. With k samples the advantage is
k / (k - 1) times the reward minus the group mean.

Differs: a group of one has no baseline and gets 0.
"""

import numpy as np

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import centered, per_token
from posttrain.types import Batch, Credit


@frozen
class RLOO(Advantage):
    """Reward minus the mean of the group's other rewards, the same for every token of a trajectory."""

    @property
    def is_relative(self) -> bool:
        """True."""
        return True

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare every trajectory's total reward with those of the rest of its group."""
        size_N = np.bincount(batch.group_N)[batch.group_N]
        leave_one_out_N = size_N / np.maximum(size_N - 1, 1)
        return state, Credit(advantages=per_token(leave_one_out_N * centered(batch.return_N, batch.group_N), batch))
