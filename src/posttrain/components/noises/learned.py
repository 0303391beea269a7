"""Noise whose standard deviation a network sets, between two bounds, for each coordinate of each step.

Source: ReinFlow, Zhang et al. 2025, arXiv:2505.22094, and its released code: the network sees the time and what the
flow is conditioned on, its output z is a tanh, and the log-variance is linear in z from its lower bound at -1 to its
upper bound at 1: the standard deviation is interpolated geometrically. Gradient flows into it through the density
only.
The release's schedule ``learn_decay`` of the upper bound: it is held for 35 % of the iterations, then falls along a
cosine to 0.3 lowest + 0.7 highest (`held`, `final`). The age is the progress of the stage that trains.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import Field, PositiveFloat, model_validator
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

    final: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """Where the upper bound ends, as a share of the way from `lowest` to `highest` (0.7 in the released runs); 1 holds
    it."""
    held: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.35
    """Age up to which the upper bound is `highest` (0.35 there)."""

    @model_validator(mode="after")
    def check_order(self) -> Self:
        """Refuse bounds in the wrong order."""
        if self.lowest > self.highest:
            raise PydanticCustomError("bounds", "lowest must not be above highest")
        return self

    def at(self, age: float) -> "Learned":
        """The noise with the upper bound of an age."""
        gone = min(max((age - self.held) / (1.0 - self.held), 0.0), 1.0)
        if self.final == 1.0 or not gone:
            return self
        last = self.lowest + self.final * (self.highest - self.lowest)
        return replace(self, highest=last + (self.highest - last) * 0.5 * (1.0 + math.cos(math.pi * gone)))

    def step(
        self, point_TP: "Tensor", velocity_TP: "Tensor", time_T1: "Tensor", size: float, level_TP: "Tensor | None"
    ) -> "tuple[Tensor, Tensor]":
        """The Euler step, with the std that the network sets."""
        assert level_TP is not None, "a learned noise has a network"
        return point_TP + size * velocity_TP, self.lowest * (self.highest / self.lowest) ** ((level_TP + 1.0) / 2.0)
