"""The reward rises while held-out accuracy falls: the policy may have found out how to please the grader.

Source: the overoptimisation of Gao, Schulman and Hilton 2022, arXiv:2210.10760. An evaluation is compared with the best
one before it: their 95 % intervals must not touch, so that luck in the drawing of tasks does not raise it. Evaluations
inside a stage (`evaluation.every`) are what makes this alarm see anything in time.
"""

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._courses import Course


@frozen
class HeldOutFalls(Alarm):
    """Training reward up, held-out accuracy down."""

    action: Action = "note"
    """What the run does when it is raised."""
    window: PositiveInt = 10
    """Steps that the average of the reward reaches back over."""

    def start(self) -> State:
        """Nothing seen."""
        return {"course": {}, "seen": None, "best": None}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare the newest evaluation with the best one."""
        course = Course(state["course"], self.window)
        if "reward" in readings.metrics:
            course.add(readings.metrics["reward"], 0)
        judged = [e for e in readings.evaluations if e.get("accuracy") is not None]
        seen = state["seen"] if state["seen"] is not None else max(len(judged) - 1, 0)
        best, said = state["best"], None
        for evaluation in judged[seen:]:
            accuracy, (low, high) = evaluation["accuracy"], evaluation["accuracy_interval"]
            if best is not None and high < best["low"] and course.average > best["reward"]:
                said = (
                    f"held-out accuracy is {100 * accuracy:.1f} % after {100 * best['accuracy']:.1f} %, while the mean "
                    f"reward rose from {best['reward']:.3g} to {course.average:.3g}: the reward may pay for something "
                    "else than right answers. Read the best paid rollouts of the last steps"
                )
            if best is None or accuracy > best["accuracy"]:
                best = {"accuracy": accuracy, "low": low, "reward": course.average}
        return {"course": course.state(), "seen": len(judged), "best": best}, said
