"""Most rollouts of a task are identical, and incorrect.

A comparison of identical rollouts has no advantage, so that their sampling is wasted. Where they are identical and
correct, the task is solved: the rule holds for steps in which most rollouts are incorrect.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import persistent

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Duplicates(Alarm):
    """Identical completions of one task."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Share = 0.9
    """Share of the rollouts that are identical to another one of the same task."""
    patience: PositiveInt = 5
    """Consecutive steps beyond the bound that raise it."""
    solved: Share = 0.5
    """No alarm where at least this share of the rollouts is correct."""

    def start(self) -> State:
        """State before the first step."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value, solved = readings.metrics.get("duplicates"), readings.metrics.get("solved", 0.0)
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound and solved < self.solved, self.patience)
        message = (
            f"{100 * value:.0f} % of the rollouts are identical to another one of their task, and only "
            f"{100 * solved:.0f} % are correct. A higher temperature or an entropy bonus restores variety"
        )
        return {"count": count}, message if fired else None
