"""Cosine decay to a share of the peak, after an optional warm-up.

Source: Loshchilov and Hutter 2016, arXiv:1608.03983, equation 5.
"""

import math
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.component.automatic import Share as Warmup
from posttrain.components.schedules import Schedule, warmed_up

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Cosine(Schedule):
    """Cosine decay to a share of the peak, after an optional warm-up."""

    warmup: Warmup = 0.0
    """Share of the stage over which the rate rises linearly to its peak; ``auto`` follows the model and the method."""
    final: Share = 0.0
    """Share of the peak at the end of the stage."""

    def factor(self, progress: float) -> float:
        """Factor of the peak rate at a progress in [0, 1)."""
        rise = warmed_up(progress, self.warmup)
        if rise is not None:
            return rise
        done = (progress - self.warmup) / max(1.0 - self.warmup, 1e-9)
        return self.final + (1.0 - self.final) * 0.5 * (1.0 + math.cos(math.pi * done))
