"""Schedules of the learning rate over a stage.

Contract: a factor in [0, 1] as a function of progress in [0, 1], whose maximum is 1.
"""

from posttrain.component import Component


class Schedule(Component):
    """Scales the peak learning rate."""

    def factor(self, progress: float) -> float:
        """Factor of the peak rate at a progress in [0, 1), the share of the stage's updates that are done."""
        raise NotImplementedError

    @property
    def follows_progress(self) -> bool:
        """Whether it is anything but the peak rate from the first update on."""
        return any(self.factor(percent / 100) != 1.0 for percent in range(100))


def warmed_up(progress: float, warmup: float) -> float | None:
    """Factor of a linear warm-up over the share `warmup` of the stage, never 0; None after the warm-up."""
    return (progress + 1e-3) / (warmup + 1e-3) if progress < warmup else None
