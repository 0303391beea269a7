"""Noises: make the sampling steps of a flow random, so that each has a density.

Contract: `step` returns mean and standard deviation of the Gaussian that a step's next point is drawn from. The std is
positive and finite at every time from 0 (noise) up to, not including, 1 (the end point).
"""

from typing import TYPE_CHECKING, ClassVar

from posttrain.component import Component

if TYPE_CHECKING:
    from torch import Tensor


class Noise(Component):
    """The Gaussian of a step."""

    learned: ClassVar[bool] = False
    """Whether a network of the policy sets the amount of noise."""

    def at(self, age: float) -> "Noise":
        """The noise with its scheduled settings at this age in [0, 1], the progress of the stage that trains."""
        return self

    def step(
        self, point_TP: "Tensor", velocity_TP: "Tensor", time_T1: "Tensor", size: float, level_TP: "Tensor | None"
    ) -> "tuple[Tensor, Tensor]":
        """[T, P] mean and standard deviation of the point at time + size.

        `velocity_TP` points from noise to the end; `level_TP` is the network's output in (-1, 1), if there is one.
        """
        raise NotImplementedError
