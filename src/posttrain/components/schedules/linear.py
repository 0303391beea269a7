"""Linear fall to a last share of the peak, after an optional warm-up."""

from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.schedules import Schedule, warmed_up

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Linear(Schedule):
    """Linear fall to a last share of the peak, after an optional warm-up."""

    warmup: Share = 0.0
    """Share of the stage over which the rate rises linearly to its peak."""
    final: Share = 0.0
    """Share of the peak at the end of the stage."""

    def factor(self, progress: float) -> float:
        """Factor at a share of the stage's updates done."""
        rise = warmed_up(progress, self.warmup)
        if rise is not None:
            return rise
        done = (progress - self.warmup) / max(1.0 - self.warmup, 1e-9)
        return 1.0 - (1.0 - self.final) * done
