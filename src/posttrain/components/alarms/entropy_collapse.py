"""The policy has stopped exploring: next to no entropy is left, and the tasks are not solved.

Source: the collapse that Yu et al. 2025 (DAPO), arXiv:2503.14476, section 3.1, describe. A policy that always samples
the same answer gives groups without a difference, and so learns nothing more. Where nearly all tasks are solved, low
entropy is what one wants: the rule holds while there is something left to learn. The entropy of a density (a flow, a
control) may be negative, and a share of it means nothing: then the alarm is silent.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._courses import mean, persistent

Share = Annotated[float, Field(gt=0.0, lt=1.0)]


@frozen
class EntropyCollapse(Alarm):
    """Entropy below a share of what it was at the beginning."""

    action: Action = "stop"
    """What the run does when it is raised."""
    share: Share = 0.05
    """Of the mean entropy of the first steps."""
    beginning: PositiveInt = 5
    """Number of first steps, which are never judged."""
    patience: PositiveInt = 5
    """Steps in a row that it takes."""
    solved: Share = 0.9
    """No alarm where at least this share of the attempts is right."""

    def start(self) -> State:
        """Nothing seen."""
        return {"first": [], "low": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the beginning."""
        entropy = readings.metrics.get("entropy")
        if entropy is None:
            return state, None
        first = list(state["first"])
        if len(first) < self.beginning:
            return {"first": [*first, entropy], "low": 0}, None
        discrete = min(*first, entropy) >= 0.0  # that of a density has no zero to fall towards
        collapsed = (
            discrete and entropy < self.share * mean(first) and readings.metrics.get("solved", 0.0) < self.solved
        )
        low, fired = persistent(state["low"], collapsed, self.patience)
        said = (
            f"entropy has fallen to {entropy:.2g} nats a token from {mean(first):.2g} at the beginning, with "
            f"{100 * readings.metrics.get('solved', 0.0):.0f} % of the attempts right: the policy has stopped "
            "exploring. A smaller learning rate, a higher clip_high, an entropy bonus or a KL penalty are the usual "
            "remedies"
        )
        return {"first": first, "low": low}, said if fired else None
