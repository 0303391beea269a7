"""Full learning rate after an optional warm-up."""

from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.schedules import Schedule, warmed_up

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Constant(Schedule):
    """Full learning rate after an optional warm-up."""

    warmup: Share = 0.0
    """Share of the stage over which the rate rises linearly to its peak."""

    def factor(self, progress: float) -> float:
        """Factor at a share of the stage's updates done."""
        rise = warmed_up(progress, self.warmup)
        return 1.0 if rise is None else rise
