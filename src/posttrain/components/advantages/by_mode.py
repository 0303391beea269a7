"""Credit apart for choosing a mode and for answering in it: two normalisations of one reward.

Source: Step-SRPO of KAT-V1, arXiv:2507.08297, as HiPO, arXiv:2509.23967, defines it; the papers' text was not read, and
the formulas are reconstructed from reviews and the model card. With the rewards r of a group, m their mean, s their
standard deviation, and m_k and s_k those of the rollouts in mode k:

    choosing     (m_k - m) / s + gamma (r - m) / s      tokens within <judge>...</judge>
    answering    (r - m_k) / s_k                         all others

So a correct answer in the worse mode is credited for its answer alone. Where a group has one mode, the first part is 0,
and answering is GRPO's advantage. Where rewards are equal, all is 0.

Differs: the variance is the unbiased one; a mode with one rollout has no credit for answering. A rollout whose choice
is not in well-formed tags counts as thinking, and all its tokens as answering.
"""

from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals, centered, group_std
from posttrain.components.rollouts import Spans
from posttrain.grading.modes import TAG, mode_of
from posttrain.types import Batch, Credit

EPSILON = 1e-6
"""Added to standard deviations, as in ``group_mean``."""


@frozen
class ByMode(Advantage):
    """Compares modes for the tokens that choose one, and rollouts of a mode for those that answer."""

    gamma: NonNegativeFloat = 0.3
    """Share of the rollout's own advantage in that of choosing (a guess; the paper's is not known)."""
    tag: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")] = TAG
    """The part that chooses."""

    @property
    def tags(self) -> frozenset[str]:
        """The part that chooses."""
        return frozenset({self.tag})

    @property
    def is_relative(self) -> bool:
        """True."""
        return True

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compute both credits; metrics are, by mode, the mean number of tokens and the share of rollouts."""
        thinks_N = np.array([mode_of(t.completion) == "on" for t in batch.trajectories], bool)
        mode_N = 2 * batch.group_N + thinks_N
        own_N, whole_N = batch.return_N, centered(batch.return_N, batch.group_N)
        within_N = centered(own_N, mode_N)
        choosing_N = _scaled(whole_N - within_N + self.gamma * whole_N, group_std(own_N, batch.group_N))
        answering_N = _scaled(within_N, group_std(own_N, mode_N))
        advantages = []
        for trajectory, choosing, answering in zip(batch.trajectories, choosing_N, answering_N, strict=True):
            spans = trajectory.fact(Spans)
            advantage_T = np.full(trajectory.num_trained, answering, np.float32)
            for start, end in spans.ranges.get(self.tag, ()) if spans is not None else ():
                advantage_T[start:end] = choosing
            advantages.append(advantage_T)
        length_N = np.array([t.num_trained for t in batch.trajectories], np.float64)
        metrics = {"thinking": float(thinks_N.mean())} if len(thinks_N) else {}
        for name, own in (("on", thinks_N), ("off", ~thinks_N)):
            if own.any():
                metrics[f"tokens_{name}"] = float(length_N[own].mean())
        return state, Credit(advantages=tuple(advantages), metrics=metrics)


def _scaled(x_N: Reals, std_N: Reals) -> Reals:
    """[N] a difference in units of a standard deviation; 0 where that is 0."""
    return np.where(std_N > 0, x_N / (std_N + EPSILON), 0.0)
