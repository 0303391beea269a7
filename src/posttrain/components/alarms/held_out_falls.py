"""The training reward rises while held-out accuracy falls: a sign of reward hacking.

Source: the overoptimisation of Gao, Schulman and Hilton 2022, arXiv:2210.10760. An evaluation is compared with the best
one before it: their 95 % intervals must not touch, so that chance in the choice of tasks does not raise it. The alarm
needs evaluations inside a stage (`evaluation.every`) to be raised in time.
"""

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import Curve


@frozen
class HeldOutFalls(Alarm):
    """Training reward up, held-out accuracy down."""

    action: Action = "note"
    """What the run does when it is raised."""
    window: PositiveInt = 10
    """Number of steps of the moving average of the reward."""

    def start(self) -> State:
        """State before the first step."""
        return {"reward": {}, "seen": None, "best": None}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare the newest evaluation with the best one."""
        rewards = Curve(state["reward"], self.window)
        if "reward" in readings.metrics:
            rewards.add(readings.metrics["reward"], 0)
        scored = [e for e in readings.evaluations if e.get("accuracy") is not None]
        seen = state["seen"] if state["seen"] is not None else max(len(scored) - 1, 0)
        best, message = state["best"], None
        for evaluation in scored[seen:]:
            accuracy, (low, high) = evaluation["accuracy"], evaluation["accuracy_interval"]
            if best is not None and high < best["low"] and rewards.average > best["reward"]:
                message = (
                    f"held-out accuracy is {100 * accuracy:.1f} % after {100 * best['accuracy']:.1f} %, while the mean "
                    f"reward rose from {best['reward']:.3g} to {rewards.average:.3g}: the reward may be raised by "
                    "something else than correct answers. Read the rollouts with the highest rewards of the last steps"
                )
            if best is None or accuracy > best["accuracy"]:
                best = {"accuracy": accuracy, "low": low, "reward": rewards.average}
        return {"reward": rewards.state(), "seen": len(scored), "best": best}, message
