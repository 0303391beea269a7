"""A penalty of tokens that became likelier than under the reference, and nothing for those that became less likely.

Source: SALMON, arXiv:2310.05910, and its release (IBM/SALMON at 7392a56, models/rl_trainer.py): the estimate k1 of the
KL of each token, held at 0 from below, is subtracted from its reward:

    -c max(0, log p - log reference)

Differs: the mean of what is left is no KL divergence; it is at least as large. The release multiplies all rewards by
10, this one included: a coefficient of 0.1 is its 0.01.
"""

from collections.abc import Mapping

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import Signal, logp_of
from posttrain.types import FloatArray, Trajectory


@frozen
class KLAbove(Penalty):
    """Subtracts from the reward of each token by how much likelier it became."""

    coefficient: NonNegativeFloat = 0.1
    """Weight, in units of reward per nat."""
    role: str = "reference"
    """The reference model."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The reference's log-probabilities."""
        return frozenset({logp_of(self.role)})

    def in_reward(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray | None:
        """[T] amount of each token; 0 for tokens that were not sampled."""
        above_T = np.maximum(trajectory.behavior_logp - signals[logp_of(self.role)], 0.0)
        return np.asarray(-self.coefficient * np.nan_to_num(above_T), np.float32)
