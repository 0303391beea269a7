"""Progress: the score of a rollout, redistributed to its turns by a model of their contributions.

Source: Wang et al. 2025 (SPA-RL), arXiv:2505.20732, and its released code (github.com/WangHanLinHenry/SPA-RL-Agent).
Instead of the score at the end, the last token of turn t is rewarded by

    r_t = alpha c_t + beta g_t

with c_t the output of the model in `role` after that token (trained on whole rollouts so that the c_t of one sum to its
score: the stage `progress`), and g_t = 1 if the action was valid in the environment, else 0. The last turn always
counts as valid. c_t may be negative, and their sum is the score only as far as the model is accurate.

`early` multiplies the reward of turn t of T by T - 1 - t, which the released trainer does and the paper does not: the
last turn then gets 0.

Differs: alpha and beta of the paper are not known. The environment's rewards of turns do not change. Where a rollout
has no record of its actions (no `Episode`), all count as valid.
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
    """Removes the score from the last token and rewards the end of every turn."""

    alpha: NonNegativeFloat = 1.0
    """Weight of a turn's contribution; 1 keeps the unit of the score."""
    beta: NonNegativeFloat = 0.5
    """Reward of a valid action (0.5: the released script, which also has a variant with 0)."""
    early: bool = False
    """Whether early turns have a higher weight."""
    role: str = "progress"
    """The model with a reward head that estimates the contribution of a turn."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The model's output after each token."""
        return frozenset({Signal("score", of=self.role)})

    def in_reward(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray:
        """[T] the turns' rewards at their last tokens, minus the score at the last token."""
        contribution_T = signals[Signal("score", of=self.role)]
        change_T = np.zeros(trajectory.num_trained, np.float64)
        ends = trajectory.turn_ends
        if not len(ends):
            return change_T.astype(np.float32)
        episode = trajectory.fact(Episode)
        valid = np.array([True] * len(ends) if episode is None else episode.valid_turns, np.float64)
        assert len(valid) == len(ends), "every turn is an action"
        valid[-1] = 1.0
        change_T[ends] = self.alpha * contribution_T[ends].astype(np.float64) + self.beta * valid
        if self.early:
            change_T[ends] *= np.arange(len(ends))[::-1]
        change_T[-1] -= value_of(trajectory)
        return change_T.astype(np.float32)
