"""What watches a run: rules that say when going on would waste it, harm it, or mean something else than it seems.

Contract: an alarm looks at the numbers of a step that has ended, keeps what it must remember in a JSON state (saved in
every checkpoint), and says in one sentence what is wrong, with the numbers; or None while all is well. It is silent on
a step that lacks its metric. A rule's reason stands in its module. What the run then does is the user's choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from posttrain.component import Component

State = Mapping[str, Any]

Action = Literal["note", "pause", "stop", "roll_back"]
"""``note``: say it, and go on. ``pause``: save, and wait until the file ``paused`` in the run's folder is removed.
``stop``: save, and end with code 3; the run can be resumed. ``roll_back``: go back to the newest checkpoint that was
saved while no alarm was raised, and on from there with other draws; after three of these, stop."""


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What there is to see after a step."""

    metrics: Mapping[str, float]
    """The step's, by name."""
    evaluations: Sequence[Mapping[str, Any]] = ()
    """Summaries of the held-out evaluations of the run until now, the oldest first."""


class Alarm(Component):
    """A rule, and what to do when it is broken."""

    action: Action
    """What the run does."""

    def start(self) -> State:
        """State before the first step of a stage."""
        return {}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Return the new state, and what is wrong."""
        raise NotImplementedError
