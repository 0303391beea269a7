"""The grader fails on some completions: those are dropped, and the rest is a biased sample.

Failures are never learned from as zeros, but completions on which a grader fails differ from the others. Where most
fail, the stage itself stops (`max_grader_errors`).
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import persistent


@frozen
class GraderErrors(Alarm):
    """Share of completions whose scoring failed."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 0.05
    """Share of the completions of a step."""
    patience: PositiveInt = 1
    """Consecutive steps beyond the bound that raise it."""

    def start(self) -> State:
        """State before the first step."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value = readings.metrics.get("grader_errors")
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound, self.patience)
        message = (
            f"{100 * value:.1f} % of the completions could not be scored and were dropped; the reasons are in the "
            "record (column score_explanation)"
        )
        return {"count": count}, message if fired else None
