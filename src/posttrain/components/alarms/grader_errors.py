"""The grader fails on some completions: those are left out, and what is left is no fair sample.

Failures are never learned from as zeros here, but completions on which a grader fails are not like the others. Where
most fail, the stage itself stops (`max_grader_errors`).
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._courses import persistent


@frozen
class GraderErrors(Alarm):
    """Judgements that failed."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 0.05
    """Share of the judgements of a step."""
    patience: PositiveInt = 1
    """Steps in a row that it takes."""

    def start(self) -> State:
        """Nothing seen."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value = readings.metrics.get("grader_errors")
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound, self.patience)
        said = (
            f"{100 * value:.1f} % of the judgements failed and their completions were left out; the reasons are in the "
            "record (column score_explanation)"
        )
        return {"count": count}, said if fired else None
