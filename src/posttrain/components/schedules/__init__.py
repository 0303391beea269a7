"""How the learning rate moves over a stage.

Contract: a factor in [0, 1] as a function of progress in [0, 1]; 1 somewhere.
"""

from posttrain.component import Component


class Schedule(Component):
    """Scales the peak learning rate."""

    def factor(self, progress: float) -> float:
        """Factor at a share of the stage's updates done, in [0, 1)."""
        raise NotImplementedError


def warmed_up(progress: float, warmup: float) -> float | None:
    """Linear rise over the first `warmup` share of the stage, None after it. Never 0: the first update counts."""
    return (progress + 1e-3) / (warmup + 1e-3) if progress < warmup else None
