"""Another advantage, of rewards divided by the running standard deviation of discounted returns.

Source: the reward scaler of ReinFlow's released code, Zhang et al. 2025, arXiv:2505.22094 (that of common PPO
implementations for control, Engstrom et al. 2020, arXiv:2005.12729, section 3): along a rollout R_t = gamma R_t-1 +
r_t over turns; the variance of all R so far, this step's included, divides the rewards: r / sqrt(variance + 1e-8),
clipped to +-10. The mean is not subtracted, so that the sign of a reward stays.

Differs: every rollout begins with R = 0, where the release goes on over the borders of its batches.
"""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.signals import Signal
from posttrain.types import Batch, Credit, Trajectory

EPSILON = 1e-8
Reals = NDArray[np.float64]


@frozen
class RunningScale(Advantage):
    """Scales rewards, and computes credit from them by another estimator."""

    advantage: Advantage
    """The estimator of the scaled rewards."""
    gamma: Annotated[float, Field(gt=0.0, le=1.0)] = 0.99
    """Discount of the returns whose standard deviation is measured, for each turn."""
    clip: PositiveFloat = 10.0
    """Largest absolute value of a scaled reward."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of the estimator."""
        return self.advantage.needs

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the estimator."""
        return self.advantage.tags

    @property
    def is_relative(self) -> bool:
        """That of the estimator."""
        return self.advantage.is_relative

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """Rewards of tokens: the scale is that of returns along a rollout, and each reward is clipped."""
        return "tokens"

    def start(self) -> State:
        """State before the first step: no return seen."""
        return {"count": 0, "mean": 0.0, "squares": 0.0, "inner": self.advantage.start()}

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Update the variance of returns, then scale the rewards."""
        rewards = [reward_T.astype(np.float64) for reward_T in batch.token_rewards]
        found = [self._returns(t, reward_T) for t, reward_T in zip(batch.trajectories, rewards, strict=True)]
        moments = _updated(state, np.concatenate([np.zeros(0), *found]))
        scale = float(np.sqrt(moments["squares"] / max(moments["count"], 1) + EPSILON))
        scaled = tuple((r_T / scale).clip(-self.clip, self.clip).astype(np.float32) for r_T in rewards)
        shaped = Batch(groups=batch.groups, signals=batch.signals, token_rewards=scaled, progress=batch.progress)
        inner, credit = self.advantage(state["inner"], shaped)
        return {**moments, "inner": inner}, Credit(
            advantages=credit.advantages,
            value_targets=credit.value_targets,
            metrics={**credit.metrics, "reward_scale": scale},
        )

    def _returns(self, trajectory: Trajectory, reward_T: Reals) -> Reals:
        """[K] the discounted sum up to each turn."""
        total_K = np.add.reduceat(reward_T, [0, *(trajectory.turn_ends[:-1] + 1)]) if len(reward_T) else reward_T
        found, value = np.zeros(len(total_K)), 0.0
        for turn, reward in enumerate(total_K):
            found[turn] = value = self.gamma * value + float(reward)
        return found


def _updated(state: State, value_N: Reals) -> dict[str, float]:
    """The moments after these values (Chan et al. 1979): count, mean, sum of squared distances."""
    old, new = state["count"], len(value_N)
    if not new:
        return {name: state[name] for name in ("count", "mean", "squares")}
    mean = float(value_N.mean())
    gap, count = mean - state["mean"], old + new
    squares = state["squares"] + float(((value_N - mean) ** 2).sum()) + gap**2 * old * new / count
    return {"count": count, "mean": state["mean"] + gap * new / count, "squares": squares}
