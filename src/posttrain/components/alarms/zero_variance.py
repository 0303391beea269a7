"""Nearly all groups have equal rewards, so that hardly anything is learned from a step.

A group whose attempts all earn the same has no advantage: the step costs as much and teaches nothing (Yu et al. 2025
(DAPO), arXiv:2503.14476, section 3.2). The tasks are all too easy or all too hard by now.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._courses import persistent


@frozen
class ZeroVariance(Alarm):
    """Groups without a difference."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 0.95
    """Share of the groups of a step."""
    patience: PositiveInt = 10
    """Steps in a row that it takes."""

    def start(self) -> State:
        """Nothing seen."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value = readings.metrics.get("zero_variance")
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound, self.patience)
        solved = 100 * readings.metrics.get("solved", 0.0)
        said = (
            f"{100 * value:.0f} % of the groups have equal rewards, with {solved:.0f} % of the attempts right: hardly "
            "anything is learned. Take harder or easier tasks, more attempts a task, or a curriculum"
        )
        return {"count": count}, said if fired else None
