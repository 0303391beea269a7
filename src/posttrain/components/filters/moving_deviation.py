"""Leave out groups whose rewards differ much less from one another than rewards have lately done.

Source: Yu et al. 2025 (RLPR), arXiv:2506.18254, and its released code. A group is kept if the deviation of its rewards
reaches beta times a moving average of the mean deviation of all groups of a step, before any is left out. For the first
10 steps everything is kept. The average begins in step 11 as the mean of steps 6 to 10; after that it is 0.99 of itself
and 0.01 of the step before.

Where rewards are not 0 or 1 but anything between, no group has equal rewards, and this takes the place of leaving out
those that have. The deviation has the unbiased variance; that of a single attempt is 0.

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
class MovingDeviation(Filter):
    """Drops groups of little deviation, compared with what is usual."""

    beta: NonNegativeFloat = 0.5
    """Share of the usual deviation that a group must reach."""
    decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    """What is left of the moving average after a step."""
    warmup: PositiveInt = 10
    """Steps in which everything is kept."""
    window: PositiveInt = 5
    """Last steps of the warm-up, whose mean the average begins with."""

    def start(self) -> State:
        """No step seen."""
        return {"steps": 0, "recent": [], "average": None}

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Compare with the average as it is before this step, then let the step into it."""
        deviations = [_deviation(group) for group in groups]
        usual = state["average"] if state["steps"] >= self.warmup else None
        kept, dropped = [], []
        for group, deviation in zip(groups, deviations, strict=True):
            if usual is None or deviation >= self.beta * usual:
                kept.append(group)
            else:
                reason = f"rewards deviate by {deviation:.4g}, less than {self.beta:g} of the usual {usual:.4g}"
                dropped.append(Dropped(group=group, reason=reason))
        return self._following(state, deviations), kept, dropped

    def _following(self, state: State, deviations: Sequence[float]) -> State:
        """The state after a step; one without any group is counted, and changes no average."""
        steps, recent, average = state["steps"] + 1, list(state["recent"]), state["average"]
        mean = [float(np.mean(deviations))] if deviations else []
        if steps <= self.warmup:
            recent = [*recent, *mean][-self.window :]
            average = float(np.mean(recent)) if recent else None
        elif mean:
            average = mean[0] if average is None else self.decay * average + (1.0 - self.decay) * mean[0]
        return {"steps": steps, "recent": recent if steps < self.warmup else [], "average": average}


def _deviation(group: Group) -> float:
    """Standard deviation of a group's rewards."""
    return float(np.std(group.rewards, ddof=1)) if len(group) > 1 else 0.0
