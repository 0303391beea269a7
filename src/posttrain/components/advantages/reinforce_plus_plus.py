"""REINFORCE++: the return to go of each token, whitened over all tokens of the batch.

Source: Hu et al. 2025, arXiv:2501.03262. The token advantage is the sum of the token rewards from there to the end: the
score at the last token, minus the KL terms when a penalty subtracts them from the reward. It is then normalized with
the mean and standard deviation of all tokens of the batch. The variant "with baseline" subtracts the group's mean
return first, and is normalized in the same way.

Differs: the paper divides by the standard deviation; here the unbiased variance plus 1e-8 is under the root, and equal
tokens get 0. With KL terms in the reward, the baseline is the group's mean return after them.
"""

from typing import Literal

import numpy as np

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import centered, whitened
from posttrain.types import Batch, Credit


@frozen
class ReinforcePlusPlus(Advantage):
    """Return to go of every token, whitened over the batch."""

    baseline: Literal["none", "group"] = "none"
    """What is subtracted before whitening: nothing, or the mean return of the group (REINFORCE++ with baseline, for
    several samples of each prompt).
    """

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """Returns."""
        return "returns"

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Sum each trajectory's rewards from the end, subtract the baseline, and whiten."""
        to_go = [np.cumsum(r[::-1], dtype=np.float64)[::-1] for r in batch.token_rewards]
        if self.baseline == "group":
            baseline_N = batch.return_N - centered(batch.return_N, batch.group_N)
            to_go = [r - baseline for r, baseline in zip(to_go, baseline_N, strict=True)]
        return state, Credit(advantages=whitened(to_go))
