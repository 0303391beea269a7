"""Reward-weighted regression: the exponential of each reward over a temperature, not centred and not normalized.

Source: RISE, Qu et al. 2024, arXiv:2407.18219, and its release: w = exp(r / tau) with tau = 0.4 multiplies the mean
cross-entropy of the tokens of a sequence; the weights are not divided by their sum, so that the size of a step depends
on the share of correct answers. A reward of 1 weighs 12.2, one of 0 weighs 1, one of -1 weighs 0.082.

With the objective `policy_gradient` and the reducer `sequences` the loss is the mean over sequences of w times the mean
cross-entropy.

Differs: a weight is at most `largest`.
"""

import math

import numpy as np
from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import per_token
from posttrain.types import Batch, Credit


@frozen
class ExpReward(Advantage):
    """exp(r / tau), the same for every token of a trajectory."""

    tau: PositiveFloat = 0.4
    """Temperature, in units of reward. Large values imitate all rollouts alike, small ones the best alone."""
    largest: PositiveFloat = 1e4
    """Bound of a weight, so that a reward on another scale than 0 to 1 gives finite ones."""

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """The weight of each trajectory; the mean is the metric ``mean_weight``."""
        weight_N = np.exp(np.minimum(batch.return_N / self.tau, math.log(self.largest)))
        metrics = {"mean_weight": float(weight_N.mean())} if len(weight_N) else {}
        return state, Credit(advantages=per_token(weight_N, batch), metrics=metrics)
