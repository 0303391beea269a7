"""Trackers of a run in progress: each in a thread of its own, which the run never waits for until it has ended.

A tracker that raises loses the entry; after three in a row it is given up. One that hangs fills its bounded queue and
is left behind at the end after `LONGEST_WAIT`. Both are reported once, in the history and on the terminal, with what
was not sent and the command that sends it.
"""

import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from posttrain.components.trackers import Tracker
from posttrain.errors.foreign import shown
from posttrain.runs.live import LiveView
from posttrain.runs.sender import Sender
from posttrain.runs.state import TRACKER
from posttrain.runs.store import RunStore
from posttrain.runs.tracked import Entry, evaluation_entry, step_entry, summary_values

Task = Callable[[Sender, RunStore], None]

MOST_WAITING = 1_000
"""Entries that wait for a tracker; more are dropped."""
LONGEST_WAIT = 60.0
"""Seconds that the end of a run waits for all its trackers together."""
_MOST_FAILURES = 3
"""Failures in a row after which a tracker is given up."""


class Follower:
    """Sends entries to a tracker from a thread. Only the thread calls the tracker."""

    def __init__(self, tracker: Tracker, folder: Path) -> None:
        """The thread begins with the first entry."""
        self.name = tracker.kind
        self.failures: list[str] = []
        """What it raised."""
        self.unsent = 0
        """Entries that were dropped."""
        self._tracker, self._folder = tracker, folder
        self._file = folder / "trackers" / f"{self.name.replace('/', '_')}.json"
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Task, int]] = deque()
        self._ending = self._given_up = False
        self._busy = 0
        """Entries of the task in progress."""
        self._thread: threading.Thread | None = None

    def put(self, task: Task, entries: int = 1) -> None:
        """Queue a task that sends a number of entries; without room it is dropped."""
        with self._changed:
            if self._given_up or len(self._waiting) >= MOST_WAITING:
                self.unsent += entries
                return
            self._waiting.append((task, entries))
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"tracker {self.name}", daemon=True)
            self._thread.start()

    def end(self, until: float) -> None:
        """Wait for the thread until a time of the monotonic clock, and count what it leaves."""
        if self._thread is None:
            return
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            with self._changed:
                self._leave(self._busy)

    def _leave(self, lost: int) -> None:
        """Give up what waits; `lost` entries were taken from there."""
        self.unsent += lost + sum(entries for _, entries in self._waiting)
        self._given_up = True
        self._waiting.clear()

    def _next(self) -> Task | None:
        """The next task; None when the run has ended and all is sent."""
        with self._changed:
            self._busy = 0
            self._changed.wait_for(lambda: self._waiting or self._ending)
            if not self._waiting:
                return None
            task, self._busy = self._waiting.popleft()
            return task

    def _work(self) -> None:
        """The thread."""
        try:
            sender = Sender(self._tracker, self._folder, file=self._file)
            with RunStore.open(self._folder, reading=True) as store:
                self._work_on(sender, store)
        except BaseException as error:  # libraries also raise SystemExit
            self._give_up(error)

    def _work_on(self, sender: Sender, store: RunStore) -> None:
        """Do all tasks. Raises what the tracker raised last when it is given up."""
        in_a_row = 0
        while (task := self._next()) is not None:
            try:
                task(sender, store)
                in_a_row = 0
            except BaseException as error:
                in_a_row += 1
                self.unsent += self._busy
                if in_a_row >= _MOST_FAILURES:
                    raise
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failures.append(f"{type(error).__name__}: {shown(error)}")

    def _give_up(self, error: BaseException) -> None:
        with self._changed:
            self._fail(error)
            self._leave(0)


class Tracking:
    """All trackers of a run."""

    def __init__(self, trackers: Sequence[Tracker], store: RunStore, view: LiveView) -> None:
        """`store` is the run's, open for writing; its history has what went wrong."""
        self._store, self._view = store, view
        self._followers = [Follower(tracker, store.folder) for tracker in trackers]
        self._rewinds = {
            follower.name: tracker.rewinds for follower, tracker in zip(self._followers, trackers, strict=True)
        }
        self._reported: set[str] = set()
        self._highest = 0
        self._summary: Mapping[str, float] | None = None

    def __enter__(self) -> Self:
        """The object itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the trackers, with the summary if the run has one."""
        until = time.monotonic() + LONGEST_WAIT
        summary = self._summary
        for follower in self._followers:
            follower.put(lambda sender, _: sender.close(summary))
        for follower in self._followers:
            follower.end(until)
            self._report(follower)
            self._report_unsent(follower)

    def go_on(self, step: int) -> None:
        """The run goes on after a step: the first, that of a checkpoint, or that of a roll-back."""
        for follower in self._followers:
            if step < self._highest and not self._rewinds[follower.name]:
                self._tell(
                    follower.name,
                    f"cannot take back steps {step + 1} to {self._highest}, and keeps those of before the roll-back; "
                    f"{self._remedy(follower.name)}",
                )

            def task(sender: Sender, _: RunStore) -> None:
                sender.rewind(step)
                sender.catch_up(step)

            follower.put(task, entries=0)

    def step(self, metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Pass on a step that is recorded: its metrics with ``step`` and ``stage_step``, and its timing."""
        self._highest = max(self._highest, metrics["step"])
        self._put(step_entry(metrics, timing))

    def evaluation(self, number: int, summary: Mapping[str, Any]) -> None:
        """Pass on an evaluation that is recorded; `number` counts from 1."""
        self._put(evaluation_entry(number, summary))

    def finish(self, summary: Mapping[str, Any]) -> None:
        """The run has ended with this summary."""
        self._summary = summary_values(summary)

    def _put(self, entry: Entry) -> None:
        for follower in self._followers:
            follower.put(lambda sender, store: sender.send(entry, store))
            self._report(follower)

    def _report(self, follower: Follower) -> None:
        """Say the first failure."""
        if follower.failures:
            self._tell(follower.name, f"failed, and the run goes on: {follower.failures[0]}")

    def _report_unsent(self, follower: Follower) -> None:
        """Say how much a tracker did not get."""
        if follower.unsent:
            what = f"did not get {follower.unsent} entries of this run (steps, evaluations, its end)"
            self._tell(f"{follower.name} ", f"{what}; {self._remedy(follower.name)}")

    def _remedy(self, name: str) -> str:
        return f"all of it: {shlex.join(['posttrain', 'export', str(self._store.folder), '--to', name])}"

    def _tell(self, name: str, message: str) -> None:
        """Say something about a tracker, once."""
        if name in self._reported:
            return
        self._reported.add(name)
        text = f"tracker {name.strip()} {message}"
        self._store.log_history(TRACKER, text)
        self._view.announce(f"warning: {text}")
