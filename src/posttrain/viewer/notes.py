"""Labels and notes of one's own on rollouts, in a file beside the run: ``RUN.notes.json``.

Nothing is written into the run. The file is replaced whole, under a lock of its folder, so that two viewers lose
nothing of each other; one that is damaged is reported and never replaced. A link in its place is not followed.
"""

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from posttrain.errors import RunFailed, UserError
from posttrain.runs.files import write_file
from posttrain.runs.reading import DOCUMENT, read_own

MOST_LABELS, LONGEST_LABEL, LONGEST_NOTE = 12, 40, 10_000
"""Labels of a rollout, and characters of a label and of a note."""
_KEY = re.compile(r"[0-9]{1,9}/[0-9]{1,9}/[0-9]{1,9}")


class Rollout(NamedTuple):
    """The place of a rollout in its run."""

    step: int
    group: int
    sample: int


class Note(BaseModel):
    """What was noted of a rollout."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: tuple[Annotated[str, Field(min_length=1, max_length=LONGEST_LABEL)], ...] = Field(
        default=(), max_length=MOST_LABELS
    )
    note: Annotated[str, Field(max_length=LONGEST_NOTE)] = ""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Annotated[int, Field(ge=1, le=1)] = 1
    rollouts: dict[Annotated[str, Field(pattern=_KEY.pattern)], Note] = {}


class Notes:
    """The notes beside one run."""

    def __init__(self, run: Path) -> None:
        """`run` is its folder."""
        self.path = run.with_name(f"{run.name}.notes.json")

    @property
    def writable(self) -> bool:
        """Whether this user may keep notes here."""
        return os.access(self.path.parent, os.W_OK) and (not self.path.exists() or os.access(self.path, os.W_OK))

    def read(self) -> dict[Rollout, Note]:
        """All notes, by rollout. Raises `UserError` for a file that holds something else."""
        try:
            found = _File.model_validate_json(read_own(self.path, DOCUMENT))
        except FileNotFoundError:
            return {}
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise UserError(
                f"{self.path} does not hold notes of this version ({'.'.join(map(str, first['loc']))}: "
                f"{first['msg']}); correct it, or move it away to begin anew"
            ) from None
        return {Rollout(*map(int, key.split("/"))): note for key, note in found.rollouts.items()}

    def write(self, rollout: Rollout, labels: str, note: str) -> Note:
        """Replace what is noted of a rollout; nothing at all removes it. `labels` are separated by commas.

        Raises `UserError` for what is too long, and where this user may not write.
        """
        own = noted(labels, note)
        if not self.writable:
            raise UserError(
                f"notes are kept in {self.path}, where you may not write; copy the run to a folder of yours"
            )
        try:
            with self._locked():
                found = {**self.read(), rollout: own}
                if own == Note():
                    del found[rollout]
                kept = {"/".join(map(str, place)): found[place] for place in sorted(found)}
                write_file(self.path, _File(rollouts=kept).model_dump_json(indent=1) + "\n")
        except OSError as error:
            raise RunFailed(f"notes could not be written to {self.path}: {error.strerror}") from error
        return own

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def noted(labels: str, note: str) -> Note:
    """Labels and a note as they are kept. Raises `UserError` for what is too long."""
    own = tuple(dict.fromkeys(label for part in labels.split(",") if (label := " ".join(part.split()))))
    long = next((label for label in own if len(label) > LONGEST_LABEL), None)
    if long is not None:
        raise UserError(f"a label has at most {LONGEST_LABEL} characters, got {len(long)}; write more into the note")
    if len(own) > MOST_LABELS:
        raise UserError(f"a rollout has at most {MOST_LABELS} labels, got {len(own)}")
    text = note.replace("\r\n", "\n").strip()
    if len(text) > LONGEST_NOTE:
        raise UserError(f"a note has at most {LONGEST_NOTE:,} characters, got {len(text):,}")
    return Note(labels=own, note=text)


def used(notes: Mapping[Rollout, Note]) -> dict[str, int]:
    """How many rollouts have each label, the most frequent first."""
    counts: dict[str, int] = {}
    for note in notes.values():
        for label in note.labels:
            counts[label] = counts.get(label, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
