"""Many completions are cut at the token limit, so that the reward measures length and not the answer.

A cut completion is almost never rewarded, however good its reasoning was, and the policy learns to be short
(Yu et al. 2025 (DAPO), arXiv:2503.14476, section 3.4).
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import persistent


@frozen
class Truncation(Alarm):
    """Completions cut at the limit."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 0.5
    """Share of the completions of a step."""
    patience: PositiveInt = 5
    """Consecutive steps beyond the bound that raise it."""

    def start(self) -> State:
        """State before the first step."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value = readings.metrics.get("truncated")
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound, self.patience)
        message = (
            f"{100 * value:.0f} % of the completions are cut at the token limit, and the policy learns to be short. "
            "Raise sampling.max_tokens"
        )
        return {"count": count}, message if fired else None
