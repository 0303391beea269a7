"""Tango's generator: the outcome of a solution, mixed with a verifier's verdicts on its steps.

Source: Zha et al. 2025 (RL Tango), arXiv:2505.15034. In a group, outcomes are normalized, and so are the verdicts on
all steps of all its solutions. A token of step k gets the sum of the normalized verdicts
on step k and all later ones, as in process supervision (Shao et al. 2024, arXiv:2402.03300, section 4.1.3). Then
A = (1 - alpha) A_outcome + alpha A_steps, where alpha decays exponentially.

The verdicts come from the rollout, as the `Verification` of a trajectory. For a solution
without verdicts, or in a group of equal verdicts, A_steps is 0. Equal outcomes do not change A_steps.

Differs: alpha's start and rate are not in the accessible parts of the paper, nor is the kind of standard deviation.
Here it is the unbiased one plus `epsilon`, as in `group_mean`. No sum is divided by the number of steps.
"""

import math
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals, centered, group_std
from posttrain.components.rollouts import Verification
from posttrain.types import Batch, Credit, IntArray


@frozen
class Tango(Advantage):
    """Weighted sum of outcome and step advantages, each normalized in its group."""

    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Initial weight of the steps, in [0, 1]; 0 is GRPO."""
    decay: NonNegativeFloat = 3.0
    """The weight is alpha exp(-decay p) after a share p of the stage."""
    epsilon: PositiveFloat = 1e-6
    """Added to the standard deviations, in units of reward."""

    @property
    def follows_progress(self) -> bool:
        """The weight of the steps falls over the stage."""
        return self.alpha > 0 and self.decay > 0

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Mix both parts token by token."""
        alpha = self.alpha * math.exp(-self.decay * batch.progress)
        outcome_N = self._normalized(batch.return_N, batch.group_N)
        steps = self._steps(batch)
        advantages = tuple(
            ((1.0 - alpha) * outcome + alpha * step_T).astype(np.float32)
            for outcome, step_T in zip(outcome_N, steps, strict=True)
        )
        verified = float(np.mean([bool(len(v_K)) for v_K in _verdicts(batch)]))
        return state, Credit(advantages=advantages, metrics={"alpha": alpha, "verified": verified})

    def _normalized(self, x_N: Reals, group_N: IntArray) -> Reals:
        return centered(x_N, group_N) / (group_std(x_N, group_N) + self.epsilon)

    def _steps(self, batch: Batch) -> list[Reals]:
        """For each trajectory, [T] sums of the normalized verdicts on a token's own step and those after it."""
        verdicts = _verdicts(batch)
        counts = [len(v_K) for v_K in verdicts]
        normalized = self._normalized(np.concatenate([np.zeros(0), *verdicts]), np.repeat(batch.group_N, counts))
        sums = []
        for trajectory, v_K in zip(batch.trajectories, np.split(normalized, np.cumsum(counts)[:-1]), strict=True):
            step_T = np.zeros(trajectory.num_trained)
            verification = trajectory.fact(Verification)
            if verification is not None and len(v_K):
                ends_K = np.asarray(verification.step_ends, np.int64)
                tail_K = v_K[::-1].cumsum()[::-1]
                step_T = tail_K[np.searchsorted(ends_K, np.arange(len(step_T)), side="right").clip(max=len(v_K) - 1)]
            sums.append(step_T)
        return sums


def _verdicts(batch: Batch) -> list[Reals]:
    """For each trajectory, [K] verdicts on its steps; none where it was not verified."""
    facts = [trajectory.fact(Verification) for trajectory in batch.trajectories]
    return [np.asarray(fact.verdicts if fact is not None else (), np.float64) for fact in facts]
