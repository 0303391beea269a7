"""Noise whose standard deviation a network sets, between two bounds, for each coordinate of each step.

Source: ReinFlow, Zhang et al. 2025, arXiv:2505.22094, and its released code: the network sees the time and what the
flow is conditioned on, its output z is a tanh, and the log-variance is linear in z from its lower bound at -1 to its
upper bound at 1: the standard deviation is interpolated geometrically. Gradient flows into it through the density
only.

Differs: the upper bound is constant; the release anneals it.
"""

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import PositiveFloat, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.noises import Noise

if TYPE_CHECKING:
    from torch import Tensor


@frozen
class Learned(Noise):
    """An Euler step, and a learned standard deviation."""

    learned: ClassVar[bool] = True

    lowest: PositiveFloat = 0.10
    """Smallest standard deviation, in units of the point (0.10 in the released runs on Hopper)."""
    highest: PositiveFloat = 0.24
    """Largest standard deviation (0.24 there)."""

    @model_validator(mode="after")
    def check_order(self) -> Self:
        """Refuse bounds in the wrong order."""
        if self.lowest > self.highest:
            raise PydanticCustomError("bounds", "lowest must not be above highest")
        return self

    def step(
        self, point_TP: "Tensor", velocity_TP: "Tensor", time_T1: "Tensor", size: float, level_TP: "Tensor | None"
    ) -> "tuple[Tensor, Tensor]":
        """The Euler step, with the std that the network sets."""
        assert level_TP is not None, "a learned noise has a network"
        return point_TP + size * velocity_TP, self.lowest * (self.highest / self.lowest) ** ((level_TP + 1.0) / 2.0)
