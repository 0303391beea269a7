"""Tango's generator: what came of a solution, mixed with what a verifier says of the way there.

Source: Zha et al. 2025 (RL Tango), arXiv:2505.15034. In a group, outcomes are normalised among themselves, and the
verdicts on all steps of all its solutions among themselves; a token of step k gets the sum of the normalised verdicts
on step k and all later ones, as in process supervision (Shao et al. 2024, arXiv:2402.03300, section 4.1.3). Then
A = (1 - alpha) A_outcome + alpha A_steps, where alpha decays exponentially.

The verdicts come from the rollout, as the `Verification` of a trajectory. A solution without verdicts
gets none of the second part; all verdicts equal give 0; all outcomes equal leave the second part as it is.

Differs: alpha's start and rate are not in what could be read of the paper, nor which standard deviation is meant; here
it is the unbiased one plus `epsilon`, as in `group_mean`. No sum is divided by the number of steps.
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
    """Outcome and steps, each normalised in its group, in one advantage."""

    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Weight of the steps when training begins, in [0, 1]; 0 is GRPO."""
    decay: NonNegativeFloat = 3.0
    """The weight is alpha exp(-decay p) after a share p of the stage."""
    epsilon: PositiveFloat = 1e-6
    """Added to the standard deviations, in units of reward."""

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Mix both parts token by token."""
        alpha = self.alpha * math.exp(-self.decay * batch.progress)
        outcome_N = self._normalized(batch.return_N, batch.group_N)
        steps = self._steps(batch)
        advantages = tuple(
            ((1.0 - alpha) * outcome + alpha * step_T).astype(np.float32)
            for outcome, step_T in zip(outcome_N, steps, strict=True)
        )
        told = float(np.mean([bool(len(v_K)) for v_K in _verdicts(batch)]))
        return state, Credit(advantages=advantages, metrics={"alpha": alpha, "verified": told})

    def _normalized(self, x_N: Reals, group_N: IntArray) -> Reals:
        return centered(x_N, group_N) / (group_std(x_N, group_N) + self.epsilon)

    def _steps(self, batch: Batch) -> list[Reals]:
        """For each trajectory, [T] sums of the normalised verdicts on a token's own step and those after it."""
        verdicts = _verdicts(batch)
        counts = [len(v_K) for v_K in verdicts]
        normalized = self._normalized(np.concatenate([np.zeros(0), *verdicts]), np.repeat(batch.group_N, counts))
        found = []
        for trajectory, v_K in zip(batch.trajectories, np.split(normalized, np.cumsum(counts)[:-1]), strict=True):
            step_T = np.zeros(trajectory.num_trained)
            said = trajectory.fact(Verification)
            if said is not None and len(v_K):
                ends_K = np.asarray(said.step_ends, np.int64)
                tail_K = v_K[::-1].cumsum()[::-1]
                step_T = tail_K[np.searchsorted(ends_K, np.arange(len(step_T)), side="right").clip(max=len(v_K) - 1)]
            found.append(step_T)
        return found


def _verdicts(batch: Batch) -> list[Reals]:
    """For each trajectory, [K] verdicts on its steps; none where it was not verified."""
    facts = [trajectory.fact(Verification) for trajectory in batch.trajectories]
    return [np.asarray(fact.verdicts if fact is not None else (), np.float64) for fact in facts]
