"""Completions go round in circles: much of their text has stood in them before.

Looping is what a policy falls into when its distribution degenerates, and it fills the context at full cost
(Holtzman et al. 2019, arXiv:1904.09751). What is counted is the share of 8-token windows that occurred earlier in the
same completion.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._courses import persistent


@frozen
class RepeatedText(Alarm):
    """Text that repeats itself."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 0.5
    """Share of the 8-token windows of a completion, the mean over a step."""
    patience: PositiveInt = 3
    """Steps in a row that it takes."""

    def start(self) -> State:
        """Nothing seen."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value = readings.metrics.get("repeated")
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound, self.patience)
        said = f"{100 * value:.0f} % of the text of the completions is repetition of what they have said before"
        return {"count": count}, said if fired else None
