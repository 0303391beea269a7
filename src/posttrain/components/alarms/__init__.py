"""Alarms: rules that watch a run and report when its training is failing, wasteful or misleading.

Contract: an alarm reads the metrics of a finished step and keeps a JSON state, which is saved in every checkpoint. It
returns a message of one sentence with the numbers, or None while the rule holds. It is silent on a step that lacks its
metric. The module's docstring has the reason for the rule. What the run then does is the user's choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from posttrain.component import Component

State = Mapping[str, Any]

Action = Literal["note", "pause", "stop", "roll_back"]
"""``note``: report it and continue. ``pause``: save, and wait until the file ``paused`` in the run's folder is removed.
``stop``: save, and end with code 3; the run can be resumed. ``roll_back``: return to the newest checkpoint that was
saved while no alarm was raised, and continue from there with other random draws; after three of these, stop."""


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What an alarm reads after a step."""

    metrics: Mapping[str, float]
    """Metrics of the step, by name."""
    evaluations: Sequence[Mapping[str, Any]] = ()
    """Summaries of the held-out evaluations of the run so far, the oldest first."""
    step: int = 1
    """Number of the step in the run."""


class Alarm(Component):
    """A rule, and the action when it is broken."""

    action: Action
    """What the run does when it is raised."""

    def start(self) -> State:
        """State before the first step of a stage."""
        return {}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Return the new state, and a message where the rule is broken."""
        raise NotImplementedError
