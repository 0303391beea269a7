"""The same noise in every step.

Source: the fixed exploration noise that ReinFlow, arXiv:2505.22094, learns instead.
"""

from typing import TYPE_CHECKING, ClassVar

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.noises import Noise

if TYPE_CHECKING:
    from torch import Tensor


@frozen
class Constant(Noise):
    """An Euler step, and a constant standard deviation."""

    RENAMED: ClassVar = {"deviation": "std"}

    std: PositiveFloat = 0.1
    """Standard deviation of each number of a step, in units of the point."""

    def step(
        self, point_TP: "Tensor", velocity_TP: "Tensor", time_T1: "Tensor", size: float, level_TP: "Tensor | None"
    ) -> "tuple[Tensor, Tensor]":
        """The Euler step, with the same std everywhere."""
        import torch

        mean_TP = point_TP + size * velocity_TP
        return mean_TP, torch.full_like(mean_TP, self.std)
