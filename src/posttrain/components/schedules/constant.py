"""Constant learning rate after an optional warm-up."""

from posttrain.component import frozen
from posttrain.component.automatic import Share as Warmup
from posttrain.components.schedules import Schedule, warmed_up


@frozen
class Constant(Schedule):
    """Constant learning rate after an optional warm-up."""

    warmup: Warmup = 0.0
    """Share of the stage over which the rate rises linearly to its peak; ``auto`` follows the model and the method."""

    def factor(self, progress: float) -> float:
        """Factor of the peak rate at a progress in [0, 1)."""
        rise = warmed_up(progress, self.warmup)
        return 1.0 if rise is None else rise
