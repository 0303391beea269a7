"""The policy has stopped exploring: its entropy has collapsed while tasks are unsolved.

Source: the collapse that Yu et al. 2025 (DAPO), arXiv:2503.14476, section 3.1, describe. A policy that always samples
the same answer gives groups of equal rewards and learns nothing more. Where nearly all tasks are solved, low entropy is
expected: the rule holds while tasks are unsolved. The entropy of a density (a flow, a control) may be negative, and a
share of it means nothing. Then the alarm is silent.
"""

from typing import Annotated, ClassVar

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import mean, persistent

Share = Annotated[float, Field(gt=0.0, lt=1.0)]


@frozen
class EntropyCollapse(Alarm):
    """Entropy below a share of its initial value."""

    RENAMED: ClassVar = {"beginning": "initial_steps"}

    action: Action = "stop"
    """What the run does when it is raised."""
    share: Share = 0.05
    """Share of the mean entropy of the first steps, in (0, 1)."""
    initial_steps: PositiveInt = 5
    """Number of first steps, whose mean is the initial entropy; none of them raises the alarm."""
    patience: PositiveInt = 5
    """Consecutive steps beyond the bound that raise it."""
    solved: Share = 0.9
    """No alarm where at least this share of the rollouts is correct."""

    def start(self) -> State:
        """State before the first step."""
        return {"first": [], "low": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the initial entropy."""
        entropy = readings.metrics.get("entropy")
        if entropy is None:
            return state, None
        first = list(state["first"])
        if len(first) < self.initial_steps:
            return {"first": [*first, entropy], "low": 0}, None
        discrete = min(*first, entropy) >= 0.0  # the entropy of a density has no lower bound of 0
        collapsed = (
            discrete and entropy < self.share * mean(first) and readings.metrics.get("solved", 0.0) < self.solved
        )
        low, fired = persistent(state["low"], collapsed, self.patience)
        message = (
            f"entropy has fallen to {entropy:.2g} nats per token from {mean(first):.2g} in the first steps, with "
            f"{100 * readings.metrics.get('solved', 0.0):.0f} % of the rollouts correct: the policy has stopped "
            "exploring. A smaller learning rate, a higher clip_high, an entropy bonus or a KL penalty are the usual "
            "remedies"
        )
        return {"first": first, "low": low}, message if fired else None
