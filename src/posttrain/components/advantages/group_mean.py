"""GRPO: each reward minus the mean of its group, optionally in units of a standard deviation.

Source: Shao et al. 2024 (DeepSeekMath), arXiv:2402.03300, section 4.1.2 (outcome supervision): every token of
completion i gets (r_i - mean(r)) / std(r). Dr. GRPO (Liu et al. 2025, arXiv:2503.20783, section 3.2) is
``scale="none"``; Lite PPO (Liu et al. 2025, arXiv:2508.08221) is ``scale="batch"``, and compares it with the other
pairs of `center` and `scale`.

Differs: the papers do not define the standard deviation or the case in which it is 0. Here, as in common practice, the
variance is the unbiased one (ddof 1) and `epsilon` is added to the std. A group of one or of equal rewards gets 0, and
so does every advantage whose std is 0, whatever was subtracted. The std of the batch is that of the raw rewards, not of
the centered ones, which is ``within``.
"""

from typing import Literal

import numpy as np
from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import centered, group_std, per_token
from posttrain.types import Batch, Credit


@frozen
class GroupMean(Advantage):
    """Reward minus group mean, the same for every token of a trajectory."""

    center: Literal["group", "batch", "none"] = "group"
    """Whose mean reward is subtracted: the group's, the whole batch's, or none."""
    scale: Literal["group", "batch", "within", "none"] = "group"
    """Whose standard deviation of rewards divides the difference: the group's, the whole batch's, that within groups
    (of all rewards of the batch, each minus the mean of its group), or none."""
    epsilon: PositiveFloat = 1e-6
    """Added to the standard deviation, in units of reward; smaller differences between rewards count as noise."""

    @property
    def is_relative(self) -> bool:
        """True where the group's mean is subtracted."""
        return self.center == "group"

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare every trajectory's total reward with those of its group."""
        return_N, one_group_N = batch.return_N, np.zeros_like(batch.group_N)
        advantage_N = return_N
        if self.center != "none":
            advantage_N = centered(return_N, batch.group_N if self.center == "group" else one_group_N)
        if self.scale != "none":
            values_N = centered(return_N, batch.group_N) if self.scale == "within" else return_N
            std_N = group_std(values_N, batch.group_N if self.scale == "group" else one_group_N)
            advantage_N = np.where(std_N > 0, advantage_N / (std_N + self.epsilon), 0.0)
        return state, Credit(advantages=per_token(advantage_N, batch))
