"""Each reward minus the mean of its group, times a weight that is larger for groups of a lower mean.

Source: Policy-Specific Hardness Weighting of Confucius3-Math, arXiv:2506.18330, section 5: rewards are +1 and -1, mu is
the mean reward of the group, and A = (R - mu) D with D = alpha mu + 1.256, alpha = -0.256; there is no division by a
standard deviation. D falls from 1.512, where hardly any rollout is correct, to 1, where nearly all are.

With rewards of 0 and 1 the weight is `offset` + `slope` mu for mu in [0, 1].
"""

import numpy as np

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import centered, per_token
from posttrain.types import Batch, Credit


@frozen
class Hardness(Advantage):
    """Reward minus group mean, weighted by the group's mean."""

    slope: float = -0.256
    """alpha: change of the weight with the group's mean reward (-0.256 in the paper); 0 with offset 1 is Dr. GRPO."""
    offset: float = 1.256
    """Weight of a group whose mean reward is 0 (1.256 in the paper)."""

    @property
    def is_relative(self) -> bool:
        """True."""
        return True

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare every trajectory's total reward with those of its group; the metric is the mean weight."""
        advantage_N = centered(batch.return_N, batch.group_N)
        weight_N = self.offset + self.slope * (batch.return_N - advantage_N)
        metrics = {"hardness": float(np.mean(weight_N))} if len(weight_N) else {}
        return state, Credit(advantages=per_token(weight_N * advantage_N, batch), metrics=metrics)
