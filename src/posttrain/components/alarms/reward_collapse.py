"""The mean reward has fallen far below its best: what was learned is being lost.

The average over a window is compared with the best average so far. The fall must be more than half of the gain since
the start, and four times the mean distance between consecutive steps, so that chance in the choice of tasks does not
raise it.
"""

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import Curve, mean


@frozen
class RewardCollapse(Alarm):
    """The mean reward has lost most of its gain."""

    action: Action = "stop"
    """What the run does when it is raised."""
    window: PositiveInt = 10
    """Number of steps of the moving average."""
    share: float = 0.5
    """Share of the gain since the start that may be lost."""
    spread: float = 4.0
    """Multiple of the mean distance between consecutive steps that gain and loss must exceed."""

    def start(self) -> State:
        """State before the first step."""
        return {"reward": {}, "best": None}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the best average so far."""
        reward = readings.metrics.get("reward")
        if reward is None:
            return state, None
        rewards = Curve(state["reward"], self.window)
        rewards.add(reward, self.window)
        best = state["best"]
        if rewards.count >= self.window:
            best = rewards.average if best is None else max(best, rewards.average)
        new = {"reward": rewards.state(), "best": best}
        if best is None:
            return new, None
        gained, lost, noise = best - mean(rewards.first), best - rewards.average, self.spread * rewards.noise
        if gained > noise and lost > noise and lost > self.share * gained:
            return new, (
                f"the mean reward is {rewards.average:.3g}, after a rise from {mean(rewards.first):.3g} to "
                f"{best:.3g}: the policy is losing what it learned. Return to an earlier checkpoint, with a "
                "smaller learning rate or a KL penalty"
            )
        return new, None
