"""Another advantage, of scores normalized by their running mean and standard deviation.

Source: the score normalisation of CORY's released run, arXiv:2410.06101 (the running moments of the trl library): the
score at the last token becomes (score - mean) / (std + 2^-23), with the mean and the unbiased std of all scores so far,
this step's included. Penalties in the reward and turn rewards are not normalised.

Differs: with a single score in the whole run, the std is taken to be 0 (there it is a division by 0).
"""

from typing import Literal

import numpy as np

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.signals import Signal
from posttrain.types import Batch, Credit, value_of

EPSILON = 2.0**-23


@frozen
class Normalized(Advantage):
    """Normalizes scores by running moments, and computes credit from them by another estimator."""

    advantage: Advantage
    """The estimator of the normalized scores."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of the estimator."""
        return self.advantage.needs

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the estimator."""
        return self.advantage.tags

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """As the estimator."""
        return self.advantage.reads

    def start(self) -> State:
        """State before the first step: no score seen."""
        return {"count": 0, "mean": 0.0, "squares": 0.0, "inner": self.advantage.start()}

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Update the moments, then replace the scores by the normalized ones."""
        score_N = np.array([value_of(t) for t in batch.trajectories], np.float64)
        moments = self._updated(state, score_N)
        std = np.sqrt(moments["squares"] / max(moments["count"] - 1, 1))
        normal_N = (score_N - moments["mean"]) / (std + EPSILON)
        rewards = []
        for reward_T, score, normal in zip(batch.token_rewards, score_N, normal_N, strict=True):
            changed_T = reward_T.astype(np.float64)
            changed_T[-1:] += normal - score
            rewards.append(changed_T.astype(np.float32))
        shaped = Batch(
            groups=batch.groups, signals=batch.signals, token_rewards=tuple(rewards), progress=batch.progress
        )
        inner, credit = self.advantage(state["inner"], shaped)
        metrics = {**credit.metrics, "score/mean": moments["mean"], "score/std": float(std)}
        return {**moments, "inner": inner}, Credit(
            advantages=credit.advantages, value_targets=credit.value_targets, metrics=metrics
        )

    def _updated(self, state: State, score_N: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> dict[str, float]:
        """The moments after these scores (Chan et al. 1979): count, mean, sum of squared distances."""
        old, new = state["count"], len(score_N)
        if not new:
            return {name: state[name] for name in ("count", "mean", "squares")}
        mean = float(score_N.mean())
        gap, count = mean - state["mean"], old + new
        squares = state["squares"] + float(((score_N - mean) ** 2).sum()) + gap**2 * old * new / count
        return {"count": count, "mean": state["mean"] + gap * new / count, "squares": squares}
