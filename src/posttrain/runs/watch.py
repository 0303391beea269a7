"""Watches a stage with the alarms of its recipe.

An alarm is reported when it is raised, and again only after it was cleared in between. So a run that was stopped by an
alarm goes on when it is resumed.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.components.alarms import Action, Alarm, Readings
from posttrain.errors import AlarmStop, PosttrainError

if TYPE_CHECKING:
    from posttrain.runs.stop import StopRequest

MOST_ROLL_BACKS = 3
"""Number of roll-backs after which a run stops instead."""
_SEVEREST: Sequence[Action] = ("stop", "roll_back", "pause", "note")


class RollBack(PosttrainError):
    """The run must go back to a checkpoint from before the alarm."""


class StoppedByAlarm(AlarmStop):
    """The run must end after a step that is complete, recorded and saved."""


class Watch:
    """The alarms of a stage. Its state is saved in every checkpoint."""

    def __init__(self, alarms: Mapping[str, Alarm], state: Mapping[str, Any] | None) -> None:
        """`state` was saved by an earlier process; None at the start of a stage."""
        self._alarms = alarms
        self._states = dict((state or {}).get("states", {name: alarm.start() for name, alarm in alarms.items()}))
        self._raised = set((state or {}).get("raised", ()))

    @property
    def healthy(self) -> bool:
        """Whether no alarm is raised."""
        return not self._raised

    def look(self, readings: Readings) -> dict[str, str]:
        """Messages of newly raised alarms, by name."""
        news = {}
        for name, alarm in self._alarms.items():
            self._states[name], message = alarm.check(self._states[name], readings)
            if message is None:
                self._raised.discard(name)
            elif name not in self._raised:
                self._raised.add(name)
                news[name] = message
        return news

    def action(self, names: Sequence[str]) -> Action:
        """The most severe action of the raised alarms."""
        return min((self._alarms[name].action for name in names), key=_SEVEREST.index, default="note")

    def state(self) -> dict[str, Any]:
        """The state as a JSON value, for the checkpoint."""
        return {"states": self._states, "raised": sorted(self._raised)}


def wait_while_paused(file: Path, stop: "StopRequest", *, every: float = 0.5) -> None:
    """Return when the file is gone or a stop is requested."""
    while file.exists() and not stop.requested:
        time.sleep(every)
