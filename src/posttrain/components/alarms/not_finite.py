"""A number of the run is NaN or infinite.

A loss or gradient that is not finite is caught before the update, and always stops the run. This one is for all other
numbers: a reward of a grader that divides by zero, a metric of a loss that overflows. From then on nothing that is
computed from it means anything.
"""

import math

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State


@frozen
class NotFinite(Alarm):
    """NaN or infinity among the metrics of a step."""

    action: Action = "stop"
    """What the run does when it is raised."""

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Look at every metric."""
        wrong = {name: value for name, value in readings.metrics.items() if not math.isfinite(value)}
        if not wrong:
            return state, None
        name, value = next(iter(wrong.items()))
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return state, f"the metric {name}{more} is {value}: what is computed from it means nothing"
