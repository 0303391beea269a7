"""GRPO: each reward minus the mean of its group, optionally in units of a standard deviation.

Source: Shao et al. 2024 (DeepSeekMath), arXiv:2402.03300, section 4.1.2 (outcome supervision): every token of
completion i gets (r_i - mean(r)) / std(r). Dr. GRPO (Liu et al. 2025, arXiv:2503.20783, section 3.2) is
``scale="none"``; Lite PPO (Liu et al. 2025, arXiv:2508.08221) is ``scale="batch"``.

Differs: the papers do not say which standard deviation is meant or what happens when it is 0. Here, as in common
practice, the variance is the unbiased one (ddof 1) and `epsilon` is added to the deviation; a group of one, or of
equal rewards, gets 0. The deviation of the batch is that of the raw rewards, not of the centred ones.
"""

from typing import Literal

import numpy as np
from pydantic import PositiveFloat

from posttrain.advantages import Advantage, State
from posttrain.advantages._arithmetic import centered, group_std, per_token
from posttrain.component import frozen
from posttrain.types import Batch, Credit


@frozen
class GroupMean(Advantage):
    """Reward minus group mean, the same for every token of a trajectory."""

    scale: Literal["group", "batch", "none"] = "group"
    """Whose standard deviation of rewards divides the difference: the group's, the whole batch's, or nobody's."""
    epsilon: PositiveFloat = 1e-6
    """Added to the standard deviation, in units of reward; smaller differences between rewards count as noise."""

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare every trajectory's total reward with those of its group."""
        advantage_N = centered(batch.return_N, batch.group_N)
        if self.scale != "none":
            among_N = batch.group_N if self.scale == "group" else np.zeros_like(batch.group_N)
            advantage_N = advantage_N / (group_std(batch.return_N, among_N) + self.epsilon)
        return state, Credit(advantages=per_token(advantage_N, batch))
