"""Drops groups whose reward standard deviation is below a fraction of its moving average.

Source: Yu et al. 2025 (RLPR), arXiv:2506.18254, and its released code. A group is kept if the std of its rewards is at
least beta times a moving average, over steps, of the mean std of all groups of a step before any is dropped. For the
first 10 steps everything is kept. The average starts in step 11 as the mean of steps 6 to 10. After that it is 0.99 of
itself plus 0.01 of the step before.

Where rewards are any number between 0 and 1, no group has exactly equal rewards, and this replaces dropping those that
have (`zero_variance`). The std has the unbiased variance; that of a single rollout is 0.

Differs: nothing known.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class MovingStd(Filter):
    """Drops groups whose reward std is below a fraction of its EMA."""

    beta: NonNegativeFloat = 0.5
    """Fraction of the moving average that a group's std must reach."""
    decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    """Share of the old average that is kept at each step, in [0, 1)."""
    warmup: PositiveInt = 10
    """Steps in which everything is kept."""
    window: PositiveInt = 5
    """Number of the last of these steps, whose mean is the first average."""

    def start(self) -> State:
        """No step seen."""
        return {"steps": 0, "recent": [], "average": None}

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Compare with the average before this step, then update the average."""
        stds = [_std(group) for group in groups]
        average = state["average"] if state["steps"] >= self.warmup else None
        kept, dropped = [], []
        for group, std in zip(groups, stds, strict=True):
            if average is None or std >= self.beta * average:
                kept.append(group)
            else:
                reason = f"the std of the rewards is {std:.4g}, below {self.beta:g} of the moving average {average:.4g}"
                dropped.append(Dropped(group=group, reason=reason))
        return self._following(state, stds), kept, dropped

    def _following(self, state: State, stds: Sequence[float]) -> State:
        """The state after a step. A step without groups is counted and changes no average."""
        steps, recent, average = state["steps"] + 1, list(state["recent"]), state["average"]
        mean = [float(np.mean(stds))] if stds else []
        if steps <= self.warmup:
            recent = [*recent, *mean][-self.window :]
            average = float(np.mean(recent)) if recent else None
        elif mean:
            average = mean[0] if average is None else self.decay * average + (1.0 - self.decay) * mean[0]
        return {"steps": steps, "recent": recent if steps < self.warmup else [], "average": average}


def _std(group: Group) -> float:
    """Standard deviation of a group's rewards."""
    return float(np.std(group.rewards, ddof=1)) if len(group) > 1 else 0.0
