"""Completions repeat themselves.

A policy whose distribution degenerates loops, and fills the context at full cost (Holtzman et al. 2019,
arXiv:1904.09751). The metric is the share of 8-token windows that occurred earlier in the same completion.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import persistent


@frozen
class RepeatedText(Alarm):
    """Text that repeats itself."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 0.5
    """Share of the 8-token windows of a completion, the mean over a step."""
    patience: PositiveInt = 3
    """Consecutive steps beyond the bound that raise it."""

    def start(self) -> State:
        """State before the first step."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value = readings.metrics.get("repeated")
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound, self.patience)
        message = f"{100 * value:.0f} % of the text of the completions repeats earlier text of the same completion"
        return {"count": count}, message if fired else None
