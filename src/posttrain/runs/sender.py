"""Sends the record of a run to one tracker, each entry once.

What was sent is kept in ``trackers/KIND.json`` in the run's folder, written before an entry is sent: a process that is
killed in between loses that entry in the tracker, rather than have it there twice. The run's record has it.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain.components.trackers import Session, TrackedRun, Tracker
from posttrain.errors import UserError
from posttrain.errors.foreign import parse_json
from posttrain.runs.files import make_folder, write_file
from posttrain.runs.reading import DOCUMENT, read_own
from posttrain.runs.store import RunStore
from posttrain.runs.tracked import Entry, Evaluated, Step, recorded_entries, samples_of


@dataclass(kw_only=True)
class Sent:
    """What a tracker has of a run."""

    id: str
    """`TrackedRun.id`."""
    step: int = 0
    """The last step."""
    evaluations: list[int] = field(default_factory=list)
    """The steps of the evaluations, in order."""
    closed: bool = False
    """Whether it has the summary."""
    reference: Mapping[str, str] = field(default_factory=dict)


def read_sent(path: Path) -> Sent | None:
    """What an earlier process sent; None if there was none. Raises `UserError` for a damaged file."""
    try:
        value = parse_json(read_own(path, DOCUMENT).decode())
        return Sent(
            id=str(value["id"]),
            step=int(value["step"]),
            evaluations=[int(step) for step in value["evaluations"]],
            closed=bool(value["closed"]),
            reference={str(key): str(item) for key, item in value["reference"].items()},
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{path} is damaged, so it is unknown what the tracker has of this run") from None


class Sender:
    """One tracker of one run. Its methods raise whatever the tracker raises."""

    def __init__(self, tracker: Tracker, folder: Path, *, file: Path | None) -> None:
        """`folder` is the run's; `file` keeps what was sent, for a run that may be resumed."""
        self.tracker, self._folder, self._file = tracker, folder, file
        self._session: Session | None = None
        self._rewound: int | None = None
        earlier = read_sent(file) if file is not None else None
        self.sent = earlier or Sent(id=secrets.token_hex(3))

    def rewind(self, step: int) -> bool:
        """The run goes on from this step. False if the tracker keeps steps after it that it cannot take back."""
        if step >= self.sent.step and all(step >= evaluated for evaluated in self.sent.evaluations):
            return True
        if not self.tracker.rewinds:
            return False
        self.sent.step = min(self.sent.step, step)
        self.sent.evaluations = [evaluated for evaluated in self.sent.evaluations if evaluated <= step]
        if self._session is not None:
            self._session.rewind(step)
        else:
            self._rewound = step
        return True

    def catch_up(self, step: int) -> None:
        """Send what the record has up to a step and the tracker has not."""
        with RunStore.open(self._folder, reading=True) as store:
            for entry in recorded_entries(store, self.sent.step, len(self.sent.evaluations)):
                if entry.step <= step:
                    self.send(entry, store)

    def send(self, entry: Entry, store: RunStore) -> None:
        """Send an entry, unless the tracker has it."""
        if self._has(entry):
            return
        session = self._open(store)
        if isinstance(entry, Step):
            self.sent.step = entry.step
        else:
            self.sent.evaluations.append(entry.step)
        self.sent.closed = False
        self._keep()
        samples = samples_of(store, entry, self.tracker)
        if isinstance(entry, Evaluated):
            session.evaluation(entry.step, entry.name, entry.values, samples)
        else:
            session.log(entry.step, entry.values)
            if samples:
                session.table(entry.step, "train", samples)

    def close(self, summary: Mapping[str, float] | None) -> None:
        """Send the summary, and end; None for a run that was stopped."""
        if self._session is None and (summary is None or self.sent.closed):
            return
        with RunStore.open(self._folder, reading=True) as store:
            session = self._open(store)
        self._session = None
        self.sent.closed = summary is not None
        self._keep()
        session.close(summary)

    def _has(self, entry: Entry) -> bool:
        if isinstance(entry, Step):
            return entry.step <= self.sent.step
        return entry.number <= len(self.sent.evaluations)

    def _open(self, store: RunStore) -> Session:
        """The session, opened at first use, since a run may have nothing to send."""
        if self._session is None:
            tree: Mapping[str, Any] = store.recipe_tree()
            run = TrackedRun(
                name=store.name, id=self.sent.id, folder=self._folder, recipe=tree, reference=self.sent.reference
            )
            self._session = self.tracker.open(run)
            self.sent.reference = dict(self._session.reference)
            if self._rewound is not None:
                self._session.rewind(self._rewound)
                self._rewound = None
        return self._session

    def _keep(self) -> None:
        if self._file is None:
            return
        if not self._file.parent.is_dir():
            make_folder(self._file.parent)
        write_file(self._file, json.dumps(vars(self.sent)) + "\n")
