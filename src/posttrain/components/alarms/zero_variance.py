"""Nearly all groups have equal rewards, so that hardly anything is learned from a step.

A group of equal rewards has no advantage: it costs as much to sample and has no gradient (Yu et al. 2025
(DAPO), arXiv:2503.14476, section 3.2). The tasks are too easy or too hard for the policy.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import persistent


@frozen
class ZeroVariance(Alarm):
    """Share of groups of equal rewards."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 0.95
    """Share of the groups of a step."""
    patience: PositiveInt = 10
    """Consecutive steps beyond the bound that raise it."""

    def start(self) -> State:
        """State before the first step."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value = readings.metrics.get("zero_variance")
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound, self.patience)
        solved = 100 * readings.metrics.get("solved", 0.0)
        message = (
            f"{100 * value:.0f} % of the groups have equal rewards, with {solved:.0f} % of the rollouts correct: "
            "hardly anything is learned. Use harder or easier tasks, more rollouts per task, or a curriculum"
        )
        return {"count": count}, message if fired else None
