"""A metric of the run is NaN or infinite.

A loss or gradient that is not finite is caught before the update, and always stops the run. This alarm is for
all other metrics: a reward of a grader that divides by zero, a metric of a loss that overflows. All that is computed
from such a number is meaningless.
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
        """Check every metric."""
        wrong = {name: value for name, value in readings.metrics.items() if not math.isfinite(value)}
        if not wrong:
            return state, None
        name, value = next(iter(wrong.items()))
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return state, f"the metric {name}{more} is {value}: all that is computed from it is meaningless"
