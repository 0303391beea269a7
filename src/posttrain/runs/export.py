"""Sends the record of a run of the past to a tracker."""

from pathlib import Path

from posttrain.components.trackers import Tracker
from posttrain.errors import RunFailed, UserError
from posttrain.errors.foreign import shown
from posttrain.runs.sender import Sender
from posttrain.runs.store import RunStore
from posttrain.runs.summary import summarize
from posttrain.runs.tracked import recorded_entries, summary_values, total


def export(folder: Path, tracker: Tracker) -> str:
    """Send all of a run's record; returns how much. Raises `RunFailed` where the library fails.

    Each call makes a run of its own in the tracker.
    """
    tracker.check()
    with RunStore.open(folder, reading=True) as store:
        sender = Sender(tracker, folder, file=None)
        entries = list(recorded_entries(store))
        if not entries:
            raise UserError(f"{folder} has no step and no evaluation yet, so there is nothing to export")
        try:
            for entry in entries:
                sender.send(entry, store)
            sender.close(summary_values(store.summary() or summarize(store)))
        except (UserError, KeyboardInterrupt):
            raise
        except BaseException as error:  # libraries also raise SystemExit
            raise RunFailed(f"{tracker.kind} failed: {type(error).__name__}: {shown(error)}") from error
        return total(entries)
