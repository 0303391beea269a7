"""A curriculum draws one category far more often than others, and its pass rate stands still.

Curricula that follow the size of advantages draw what has the most spread, and nothing has more than what cannot be
learned: a coin flip has half of its rollouts correct for ever. In six simulated domains, one of which is a coin flip,
this rule found it after 40 to 48 steps in 20 of 20 runs of DUMP and of SEC, and named no other domain. Where bands of
one skill are the categories it is raised as well, in 20 of 20 runs of 160 steps, mostly after the hundredth: little
else than the hardest band is left then. So it is a note only.

Read are the metrics ``curriculum/share/NAME`` and ``curriculum/solved/NAME``, which curricula of categories report.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PositiveFloat

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import mean

_SHARE, _SOLVED = "curriculum/share/", "curriculum/solved/"


@frozen
class StillCategory(Alarm):
    """Share and pass rate of each category of a curriculum."""

    action: Action = "note"
    """What the run does when it is raised."""
    window: Annotated[int, Field(ge=4, le=10_000)] = 40
    """Steps that are looked back on."""
    times: PositiveFloat = 2.0
    """Multiple of the share that each category would have if all were drawn alike."""
    noise: PositiveFloat = 2.0
    """Standard errors within which the pass rates of both halves of the window are the same."""

    def start(self) -> State:
        """State before the first step."""
        return {"rows": []}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare the halves of the window of every category that is drawn often."""
        shares = _named(readings.metrics, _SHARE)
        if len(shares) < 2:
            return state, None
        rows = [*state["rows"], [shares, _named(readings.metrics, _SOLVED)]][-self.window :]
        following = {"rows": rows}
        if len(rows) < self.window:
            return following, None
        for name in sorted(shares):
            drawn = mean([row[0].get(name, 0.0) for row in rows])
            halves = rows[: self.window // 2], rows[self.window // 2 :]
            rates = [[row[1][name] for row in half if name in row[1]] for half in halves]
            if drawn * len(shares) >= self.times and self._still(*rates):
                message = (
                    f"the curriculum drew '{name}' for {100 * drawn:.0f} % of the tasks of {self.window} steps, one of "
                    f"{len(shares)} categories, and its pass rate stands still at {100 * mean(rates[1]):.0f} %: it may "
                    "be what cannot be learned, such as answers by chance. Inspect its tasks, or leave them out"
                )
                return following, message
        return following, None

    def _still(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """Whether two means differ by noise alone; false for too few values."""
        if len(before) < 2 or len(after) < 2:
            return False
        error = math.hypot(*(math.sqrt(_variance(own) / len(own)) for own in (before, after)))
        return abs(mean(after) - mean(before)) <= self.noise * error + 1e-9


def _named(metrics: Mapping[str, float], prefix: str) -> dict[str, Any]:
    """Finite metrics with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): value
        for name, value in metrics.items()
        if name.startswith(prefix) and math.isfinite(value)
    }


def _variance(values: Sequence[float]) -> float:
    center = mean(values)
    return sum((value - center) ** 2 for value in values) / (len(values) - 1)
