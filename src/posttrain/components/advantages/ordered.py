"""GRPO, with a bonus for correct rollouts of tasks that are no easier with their events in another order.

Source: TimeHC-RL, arXiv:2505.24500; its values are known from public reviews, and the rule is that of Video-R1
(arXiv:2503.21776), from which it comes. Let p be the share of correct rollouts of a task, and q that of its shuffled
copy (the fact `Shuffled`, see ``rollout.kind=shuffled``). Where p >= mu q, each correct rollout gets alpha more:

    A_i = (r_i - mean(r)) / std(r) + alpha [p >= mu q] [i is correct]

Shares are compared, not rewards: with a wrong answer at -1.5, mean rewards below 0 would reverse the comparison. With
rewards of two values, alpha on the *reward* changes no advantage, as both sides of the group move in the same
proportion; ``where: reward`` does that, as Video-R1 does. A task without a copy has no bonus.
"""

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import centered, group_std, per_token
from posttrain.components.rollouts import Shuffled
from posttrain.types import Batch, Credit, Trajectory


@frozen
class Ordered(Advantage):
    """Group-normalized reward, and a bonus where order matters to the model."""

    alpha: NonNegativeFloat = 0.1
    """The bonus (0.1: reviews of the paper)."""
    mu: NonNegativeFloat = 0.8
    """Share of the accuracy on the copy that is enough (0.8: Video-R1; the paper's is not known)."""
    where: Literal["advantage", "reward"] = "advantage"
    """What the bonus is added to."""
    epsilon: PositiveFloat = 1e-6
    """Added to the standard deviation, in units of reward."""

    @property
    def is_relative(self) -> bool:
        """True."""
        return True

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Metrics: the share of rollouts with a bonus, and the accuracy on tasks that have a copy and on copies."""
        right_N = np.array([_correct(t) for t in batch.trajectories], np.float64)
        copies_N = np.array([_shuffled(t) for t in batch.trajectories], np.float64)
        ordered_N = right_N - centered(right_N, batch.group_N)
        # A share is a mean of zeros and ones; its last bit must not decide.
        given_N = np.isfinite(copies_N) & (ordered_N >= self.mu * copies_N - 1e-9)
        bonus_N = self.alpha * right_N * given_N
        return_N = batch.return_N + (bonus_N if self.where == "reward" else 0.0)
        std_N = group_std(return_N, batch.group_N)
        advantage_N = np.where(std_N > 0, centered(return_N, batch.group_N) / (std_N + self.epsilon), 0.0)
        if self.where == "advantage":
            advantage_N = advantage_N + bonus_N
        metrics = {"bonus_share": float(np.mean(bonus_N > 0))} if len(bonus_N) else {}
        if (known_N := np.isfinite(copies_N)).any():
            metrics["accuracy_ordered"] = float(ordered_N[known_N].mean())
            metrics["accuracy_shuffled"] = float(copies_N[known_N].mean())
        return state, Credit(advantages=per_token(advantage_N, batch), metrics=metrics)


def _correct(trajectory: Trajectory) -> bool:
    return trajectory.score is not None and trajectory.score.status == "ok"


def _shuffled(trajectory: Trajectory) -> float:
    """Accuracy on the task's copy; NaN without one."""
    fact = trajectory.fact(Shuffled)
    return fact.accuracy if fact is not None else np.nan
