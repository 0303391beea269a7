"""Squared distance between the velocities of a flow and of a reference, at the same noised points.

Source: the regulariser of AWM, Xue et al. 2025, arXiv:2509.25050: coefficient * mean (v - v_reference)^2, for the model
before training (0.001 to 0.003 in the released runs), and with weight 1 for a slow average of the weights, which bounds
the change of the flow per step. With v of rectified flows it is the divergence of path distributions, up to a factor
that depends on the time.
"""

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import VELOCITY, Signal
from posttrain.types import PerToken, Tokens


@frozen
class Velocity(Penalty):
    """Squared distance of a velocity field from a reference's."""

    coefficient: NonNegativeFloat = 0.001
    """Weight of the mean squared distance."""
    role: str = "reference"
    """The reference flow."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Both velocities."""
        return frozenset({VELOCITY, Signal("velocity", of=self.role)})

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] coefficient times the mean squared distance; the metric is the bare distance."""
        gap_TD = tokens[VELOCITY] - tokens[Signal("velocity", of=self.role)]
        distance_T = (gap_TD**2).mean(-1)
        return PerToken(loss_T=self.coefficient * distance_T, metrics={"distance": distance_T.detach()})
