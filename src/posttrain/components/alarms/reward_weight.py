"""Learned weights have left the reward nearly none, so that it is no longer learned from.

Source: constrained rewards with softmax shares (arXiv:2112.12228): a constraint that cannot be met, or two that
contradict each other, take all weight (`advantages/constrained`).
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import persistent


@frozen
class RewardWeight(Alarm):
    """Weight of the reward beside constraints."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.05
    """Smallest weight."""
    patience: PositiveInt = 5
    """Consecutive steps beyond the bound that raise it."""

    def start(self) -> State:
        """State before the first step."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value = readings.metrics.get("weight/reward")
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value < self.bound, self.patience)
        heaviest = max(
            (abs(own), name.removeprefix("weight/"))
            for name, own in readings.metrics.items()
            if name.startswith("weight/")
        )
        message = (
            f"the reward has {value:.3f} of the weight, constraint {heaviest[1]} {heaviest[0]:.3f}: the reward is "
            "hardly learned from. Check whether the rates can be met together, or loosen them"
        )
        return {"count": count}, message if fired else None
