"""A KL penalty in the reward whose weight is adapted to keep the divergence near a target.

Source: Ziegler et al. 2019, arXiv:1909.08593, section 2.2, as used by CORY (arXiv:2410.06101; start 0.4, target 6,
horizon 10000, exact divergence over the vocabulary): after a step of n rollouts whose divergence, summed over each
rollout's tokens, has the mean d, the weight is multiplied by 1 + clip(d / target - 1, -0.2, 0.2) n / horizon.

Differs: nothing known.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty, State
from posttrain.signals import Signal, logp_of
from posttrain.types import Batch, FloatArray, Trajectory

MOST = 0.2
"""Bound of the relative error."""


@frozen
class AdaptiveKL(Penalty):
    """KL penalty with an adaptive weight: higher while the divergence is above its target."""

    coefficient: NonNegativeFloat = 0.4
    """Initial weight of the divergence, in units of reward per nat."""
    target: PositiveFloat = 6.0
    """Divergence of a whole rollout at which the weight does not change, in nats."""
    horizon: PositiveFloat = 10000.0
    """Number of rollouts in which a divergence far above the target raises the weight by about a fifth."""
    form: Literal["exact", "k1"] = "exact"
    """``exact`` is over the whole vocabulary at each token; ``k1`` the difference of the sampled tokens'
    log-probabilities."""
    role: str = "reference"
    """The reference model."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The divergence, or the reference's log-probabilities."""
        return frozenset({self._read})

    @property
    def _read(self) -> Signal:
        return Signal("reverse_kl", of=self.role, old=True) if self.form == "exact" else logp_of(self.role)

    def start(self) -> State:
        """State with the initial weight."""
        return {"coefficient": self.coefficient}

    def at(self, state: State) -> "AdaptiveKL":
        """The penalty with the current weight."""
        return replace(self, coefficient=state["coefficient"])

    def observe(self, state: State, batch: Batch) -> State:
        """The weight after a step."""
        each = [
            float(
                self._divergence(t, {name: values[i] for name, values in batch.signals.items()}).sum(dtype=np.float64)
            )
            for i, t in enumerate(batch.trajectories)
        ]
        error = float(np.clip(np.mean(each) / self.target - 1.0, -MOST, MOST))
        return {"coefficient": state["coefficient"] * (1.0 + error * len(each) / self.horizon)}

    def in_reward(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray:
        """[T] minus weight times divergence; 0 for tokens that were not sampled."""
        return np.asarray(-self.coefficient * self._divergence(trajectory, signals), np.float32)

    def _divergence(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray:
        """[T] divergence at each token."""
        read_T = signals[self._read]
        found_T = read_T if self.form == "exact" else trajectory.behavior_logp - read_T
        return np.where(np.isnan(trajectory.behavior_logp), 0.0, found_T).astype(np.float32)
