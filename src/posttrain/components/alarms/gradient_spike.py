"""A gradient is many times larger than those before it.

One such step can undo a hundred (Molybog et al. 2023, arXiv:2304.09871, on the spikes of Adam). Clipping bounds the
step itself; the batch that caused it is worth looking at all the same: an outlier in the rewards, a ratio that
exploded, a token that had next to no probability.
"""

from statistics import median
from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State


@frozen
class GradientSpike(Alarm):
    """The gradient norm against the median of the last steps."""

    action: Action = "note"
    """What the run does when it is raised."""
    factor: Annotated[float, Field(gt=1.0)] = 20.0
    """Times the median."""
    window: PositiveInt = 50
    """Steps that the median is of."""
    beginning: PositiveInt = 10
    """Steps before any is judged."""

    def start(self) -> State:
        """Nothing seen."""
        return {"norms": []}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the median; a spike does not count in the medians to come."""
        norm = readings.metrics.get("gradient_norm")
        if norm is None:
            return state, None
        norms = list(state["norms"])
        usual = median(norms) if len(norms) >= self.beginning else None
        if usual is not None and norm > self.factor * max(usual, 1e-12):
            return state, (
                f"the gradient norm is {norm:.3g}, {norm / max(usual, 1e-12):.0f} times the median of the last "
                f"{len(norms)} steps. Look at this step's rollouts; learner.clip_norm bounds what it can do"
            )
        return {"norms": [*norms, norm][-self.window :]}, None
