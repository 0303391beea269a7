"""A gradient norm is many times the median of those before it.

One such step can undo a hundred (Molybog et al. 2023, arXiv:2304.09871, on the spikes of Adam). Clipping bounds the
step itself; the batch that caused it should still be inspected: an outlier in the rewards, a ratio that exploded,
a token of very low probability.
"""

from statistics import median
from typing import Annotated, ClassVar

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State


@frozen
class GradientSpike(Alarm):
    """Gradient norm far above the median of the last steps."""

    RENAMED: ClassVar = {"beginning": "initial_steps"}

    action: Action = "note"
    """What the run does when it is raised."""
    factor: Annotated[float, Field(gt=1.0)] = 20.0
    """Multiple of the median that raises it."""
    window: PositiveInt = 50
    """Number of last steps that the median is taken over."""
    initial_steps: PositiveInt = 10
    """Number of first steps, none of which raises the alarm."""

    def start(self) -> State:
        """State before the first step."""
        return {"norms": []}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the median; a spike is not part of later medians."""
        norm = readings.metrics.get("gradient_norm")
        if norm is None:
            return state, None
        norms = list(state["norms"])
        usual = median(norms) if len(norms) >= self.initial_steps else None
        if usual is not None and norm > self.factor * max(usual, 1e-12):
            return state, (
                f"the gradient norm is {norm:.3g}, {norm / max(usual, 1e-12):.0f} times the median of the last "
                f"{len(norms)} steps. Inspect this step's rollouts; learner.clip_norm bounds the size of an update"
            )
        return {"norms": [*norms, norm][-self.window :]}, None
