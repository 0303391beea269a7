"""A divergence taken from the reward, with a weight that is steered so that the divergence stays near a target.

Source: Ziegler et al. 2019, arXiv:1909.08593, section 2.2, as used by CORY (arXiv:2410.06101; start 0.4, target 6,
horizon 10000, exact divergence over the vocabulary): after a step of n attempts whose divergence, summed over each
attempt's tokens, has the mean d, the weight is multiplied by 1 + clip(d / target - 1, -0.2, 0.2) n / horizon.

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
"""Largest relative error that counts."""


@frozen
class AdaptiveKL(Penalty):
    """A cost for moving away from a reference model, dearer the further away the policy is."""

    coefficient: NonNegativeFloat = 0.4
    """Weight of the divergence when training begins, in units of reward per nat."""
    target: PositiveFloat = 6.0
    """Divergence of a whole attempt that leaves the weight as it is, in nats."""
    horizon: PositiveFloat = 10000.0
    """Attempts in which a divergence far too high raises the weight by about a fifth; infinite would not adapt."""
    form: Literal["exact", "k1"] = "exact"
    """``exact`` is over the whole vocabulary at each token; ``k1`` the difference of the sampled tokens'
    log-probabilities."""
    role: str = "reference"
    """The model to stay close to."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The divergence, or the reference's log-probabilities."""
        return frozenset({self._read})

    @property
    def _read(self) -> Signal:
        return Signal("reverse_kl", of=self.role, old=True) if self.form == "exact" else logp_of(self.role)

    def start(self) -> State:
        """The weight that training begins with."""
        return {"coefficient": self.coefficient}

    def at(self, state: State) -> "AdaptiveKL":
        """With the weight of the moment."""
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
        """[T] minus weight times divergence; 0 for tokens that nobody sampled."""
        return np.asarray(-self.coefficient * self._divergence(trajectory, signals), np.float32)

    def _divergence(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray:
        """[T] divergence at each token."""
        read_T = signals[self._read]
        found_T = read_T if self.form == "exact" else trajectory.behavior_logp - read_T
        return np.where(np.isnan(trajectory.behavior_logp), 0.0, found_T).astype(np.float32)
