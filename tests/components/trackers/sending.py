"""Sends a made-up run to a tracker from two processes, as a run that was killed and resumed does."""

from pathlib import Path

from posttrain.components.trackers import Tracker
from posttrain.runs.export import export
from posttrain.runs.sender import Sender
from posttrain.runs.store import RunStore
from posttrain.runs.summary import summarize
from posttrain.runs.tracked import recorded_entries, summary_values

KILLED_AFTER, RESUMED_FROM = 4, 2


def send_twice(run: Path, tracker: Tracker, file: Path) -> Sender:
    """Steps 1 to 4; then a new process goes on from the checkpoint of step 2 and does the rest."""
    with RunStore.open(run, reading=True) as store:
        first = Sender(tracker, run, file=file)
        for entry in recorded_entries(store):
            if entry.step <= KILLED_AFTER:
                first.send(entry, store)
        first.close(None)
        second = Sender(tracker, run, file=file)
        second.rewind(RESUMED_FROM)
        second.catch_up(RESUMED_FROM)
        for entry in recorded_entries(store, RESUMED_FROM, 1):
            second.send(entry, store)
        second.close(summary_values(summarize(store)))
        return second


def metrics(run: Path, name: str) -> list[tuple[int, float]]:
    """Step and value of a metric in a run's record."""
    with RunStore.open(run, reading=True) as store:
        return [(line["step"], line[name]) for line in store.metrics()]


__all__ = ["export", "metrics", "send_twice"]
