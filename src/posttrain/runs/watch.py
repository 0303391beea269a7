"""Watches a stage with the alarms of its recipe.

An alarm is told when it is raised, and not again before it was well in between. So a run that was stopped by one and is
resumed all the same goes on.
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
"""Times that a run goes back before it stops instead."""
_SEVEREST: Sequence[Action] = ("stop", "roll_back", "pause", "note")


class RollBack(PosttrainError):
    """The run is to go back to a checkpoint from before its trouble."""


class StoppedByAlarm(AlarmStop):
    """The run is to end after a step that is complete, recorded and saved."""


class Watch:
    """The alarms of a stage. Its state is saved in every checkpoint."""

    def __init__(self, alarms: Mapping[str, Alarm], state: Mapping[str, Any] | None) -> None:
        """`state` is what an earlier process saved; None at the beginning of a stage."""
        self._alarms = alarms
        self._states = dict((state or {}).get("states", {name: alarm.start() for name, alarm in alarms.items()}))
        self._raised = set((state or {}).get("raised", ()))

    @property
    def healthy(self) -> bool:
        """Whether no alarm stands raised."""
        return not self._raised

    def look(self, readings: Readings) -> dict[str, str]:
        """What is newly wrong, by name of the alarm."""
        news = {}
        for name, alarm in self._alarms.items():
            self._states[name], said = alarm.check(self._states[name], readings)
            if said is None:
                self._raised.discard(name)
            elif name not in self._raised:
                self._raised.add(name)
                news[name] = said
        return news

    def action(self, names: Sequence[str]) -> Action:
        """What the raised alarms want done: the severest of it."""
        return min((self._alarms[name].action for name in names), key=_SEVEREST.index, default="note")

    def state(self) -> dict[str, Any]:
        """JSON, to be saved."""
        return {"states": self._states, "raised": sorted(self._raised)}


def wait_while_paused(file: Path, stop: "StopRequest", *, every: float = 0.5) -> None:
    """Return when the file is gone, or somebody asks the run to stop."""
    while file.exists() and not stop.requested:
        time.sleep(every)
