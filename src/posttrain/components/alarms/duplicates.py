"""The attempts at a task are all the same, and wrong.

Then comparing them can teach nothing, and the reward per sampled token is thrown away. Where they are the same and
right, the task is simply solved: the rule looks at steps in which most attempts are wrong.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._courses import persistent

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Duplicates(Alarm):
    """Identical completions of one task."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Share = 0.9
    """Share of the attempts that are word for word like another one at the same task."""
    patience: PositiveInt = 5
    """Steps in a row that it takes."""
    solved: Share = 0.5
    """No alarm where at least this share of the attempts is right."""

    def start(self) -> State:
        """Nothing seen."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value, solved = readings.metrics.get("duplicates"), readings.metrics.get("solved", 0.0)
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound and solved < self.solved, self.patience)
        said = (
            f"{100 * value:.0f} % of the attempts are word for word like another one at their task, and only "
            f"{100 * solved:.0f} % are right. A higher temperature or an entropy bonus brings variety back"
        )
        return {"count": count}, said if fired else None
