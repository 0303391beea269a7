"""Progress: the score of an attempt, handed out to its turns by what a model says that each contributed.

Source: Wang et al. 2025 (SPA-RL), arXiv:2505.20732, and its released code (github.com/WangHanLinHenry/SPA-RL-Agent). In
the place of the score at the end, the last token of turn t is rewarded by

    r_t = alpha c_t + beta g_t

with c_t what the model in `role` says after that token (it learned from whole attempts that the c_t of one add up to
its score: the stage `progress`), and g_t = 1 if the world could carry out the action, else 0. The last turn always
counts as carried out. c_t may be negative, and their sum is the score only as far as the model is right.

`early` multiplies the reward of turn t of T by T - 1 - t, which the released trainer does and the paper does not: the
last turn gets nothing then.

Differs: alpha and beta of the paper are not known. Rewards that the world gave to single turns stay what they are.
Where a rollout says nothing of its actions (no `Episode`), all were carried out.
"""

from collections.abc import Mapping

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.environments import Episode
from posttrain.components.penalties import Penalty
from posttrain.signals import Signal
from posttrain.types import FloatArray, Trajectory, value_of


@frozen
class Progress(Penalty):
    """Takes the score from the last token and rewards the end of every turn."""

    alpha: NonNegativeFloat = 1.0
    """Weight of what a turn contributed; 1 keeps the unit of the score."""
    beta: NonNegativeFloat = 0.5
    """Reward of an action that could be carried out (0.5: the released script, which also has it without)."""
    early: bool = False
    """Whether early turns count for more."""
    role: str = "progress"
    """The model with a reward head that tells what a turn contributed."""

    @property
    def needs(self) -> frozenset[Signal]:
        """What the model says after each token."""
        return frozenset({Signal("score", of=self.role)})

    def in_reward(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray:
        """[T] the turns' rewards at their last tokens, less the score at the last of all."""
        said_T = signals[Signal("score", of=self.role)]
        change_T = np.zeros(trajectory.num_trained, np.float64)
        ends = trajectory.turn_ends
        if not len(ends):
            return change_T.astype(np.float32)
        episode = trajectory.fact(Episode)
        valid = np.array([True] * len(ends) if episode is None else episode.valid_turns, np.float64)
        assert len(valid) == len(ends), "every turn of a world is an action"
        valid[-1] = 1.0
        change_T[ends] = self.alpha * said_T[ends].astype(np.float64) + self.beta * valid
        if self.early:
            change_T[ends] *= np.arange(len(ends))[::-1]
        change_T[-1] -= value_of(trajectory)
        return change_T.astype(np.float32)
