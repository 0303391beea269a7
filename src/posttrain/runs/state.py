"""Whether a run is in progress, finished, stopped, or has failed, and why."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from posttrain.runs.lock import is_locked

STOPPED, FAILED = "stopped", "failed"
"""Kinds of the history's last entry of a process that ended before the run did."""
TRACKER = "tracker"
"""Kind of entries about trackers."""


class State(NamedTuple):
    """The state of a run."""

    name: Literal["finished", "running", "stopped", "failed"]
    why: str = ""
    """What stopped it, where that is known."""


def state_of(folder: Path, history: Sequence[Mapping[str, Any]]) -> State:
    """The state of a run from its files. A process that was killed leaves no reason."""
    if (folder / "summary.json").is_file():
        return State("finished")
    if is_locked(folder):
        return State("running")
    # Trackers are ended last, and may have something to report then.
    last: Mapping[str, Any] = next((entry for entry in reversed(history) if entry.get("kind") != TRACKER), {})
    why = str(last.get("message", ""))
    if last.get("kind") == FAILED:
        return State("failed", why)
    return State("stopped", why if last.get("kind") == STOPPED else "no reason is recorded, as when it is killed")
