"""What had been learned is being lost: the reward has fallen far below its best.

The average over a window is compared with the best average so far. The fall must be more than half of all that was
gained since the beginning, and four times what a step lies from the one before, so that luck in the tasks that are
drawn does not raise it.
"""

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._courses import Course, mean


@frozen
class RewardCollapse(Alarm):
    """The mean reward has lost most of its gain."""

    action: Action = "stop"
    """What the run does when it is raised."""
    window: PositiveInt = 10
    """Steps that the average reaches back over."""
    share: float = 0.5
    """Of the gain since the beginning that may be lost."""
    spread: float = 4.0
    """Times the mean distance from step to step, that the gain and the loss must reach."""

    def start(self) -> State:
        """Nothing seen."""
        return {"course": {}, "best": None}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the best."""
        reward = readings.metrics.get("reward")
        if reward is None:
            return state, None
        course = Course(state["course"], self.window)
        course.add(reward, self.window)
        best = state["best"]
        if course.count >= self.window:
            best = course.average if best is None else max(best, course.average)
        new = {"course": course.state(), "best": best}
        if best is None:
            return new, None
        gained, lost, noise = best - mean(course.first), best - course.average, self.spread * course.noise
        if gained > noise and lost > noise and lost > self.share * gained:
            return new, (
                f"the mean reward is {course.average:.3g}, after it had risen from {mean(course.first):.3g} to "
                f"{best:.3g}: the policy is losing what it had learned. Go back to an earlier checkpoint, with a "
                "smaller learning rate or a KL penalty"
            )
        return new, None
