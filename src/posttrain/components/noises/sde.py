"""Noise of an SDE with the flow's own marginals: the distribution of points at every time does not change.

Source: Flow-GRPO, Liu et al. 2025, arXiv:2505.05470, equation 9. With t the share of noise, u = dx/dt the velocity
towards noise and s = level * sqrt(t / (1 - t)), a step down by d is x - (u + s^2 / (2 t) (x + (1 - t) u)) d +
s sqrt(d) * noise. DDPO, Black et al. 2023, arXiv:2305.13301, does the same with the steps of a diffusion.

Differs: at t = 1, where s is infinite, the 1 - t of the end of that step is taken, as in the released code; with a
single step, whose end is at 0, that of its middle.
"""

from typing import TYPE_CHECKING

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.noises import Noise

if TYPE_CHECKING:
    from torch import Tensor


@frozen
class SDE(Noise):
    """A step of the SDE."""

    level: PositiveFloat = 0.7
    """Amount of noise (a in the paper, which takes 0.7); 0 would be the flow itself."""

    def step(
        self, point_TP: "Tensor", velocity_TP: "Tensor", time_T1: "Tensor", size: float, level_TP: "Tensor | None"
    ) -> "tuple[Tensor, Tensor]":
        """Drift towards the end, corrected for the noise."""
        share_T1 = 1.0 - time_T1
        most = 1.0 - size if size < 1.0 else 0.5
        held_T1 = share_T1.where(share_T1 < 1.0 - 1e-6, share_T1.new_full((), most))
        variance_T1 = self.level**2 * share_T1 / (1.0 - held_T1)
        # Towards noise the velocity has the other sign.
        correction_TP = variance_T1 / (2.0 * share_T1) * (point_TP - time_T1 * velocity_TP)
        mean_TP = point_TP + (velocity_TP - correction_TP) * size
        return mean_TP, (variance_T1 * size).sqrt().expand_as(mean_TP)
