"""An append-only file of JSON lines that survives a kill or a power cut at any moment.

A line goes to the system in one write, so a killed process leaves at most its last line unfinished. What is unfinished
is not a line: readers skip it and the next writer truncates it. A power cut can damage everything appended since the
last `Journal.sync`, also in the middle (`sound_lines`); a checkpoint keeps the synced size, to truncate to.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posttrain.errors import RunFailed, UserError
from posttrain.errors.foreign import parse_json
from posttrain.runs.failure import cannot_write
from posttrain.runs.files import sync_descriptor
from posttrain.runs.reading import JOURNAL, read_own


class Journal:
    """A journal of a run, open for appending."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or creates it; raises `RunFailed` if neither is possible."""
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise cannot_write(error, path, path.parent) from error

    @property
    def size(self) -> int:
        """Length in bytes."""
        return os.fstat(self._descriptor).st_size

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append one line. Raises `RunFailed` if it cannot be written, without leaving a part of it."""
        line = (json.dumps(plain(entry), allow_nan=False) + "\n").encode("ascii")
        size = self.size
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):  # a full disk may take a part; writing again gives the reason
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            os.ftruncate(self._descriptor, size)
            raise cannot_write(error, self.path, self.path.parent) from error
        if os.fstat(self._descriptor).st_nlink == 0:  # writing to a deleted file succeeds, and is lost
            raise cannot_write(FileNotFoundError("it has been deleted"), self.path, self.path.parent)

    def drop_unfinished(self) -> int:
        """Truncate a last line that is unfinished, or that a power cut damaged; returns its number of bytes."""
        size = self.size
        content = read_own(self.path, JOURNAL)
        whole = content.rfind(b"\n") + 1
        last = content.rfind(b"\n", 0, max(0, whole - 1)) + 1
        if whole and _object(content[last:whole], self.path) is None:
            whole = last
        os.ftruncate(self._descriptor, whole)
        return size - whole

    def end_line(self) -> None:
        """End a last line that is unfinished, so that the next one is whole. What was unfinished is no entry then."""
        if self.size and os.pread(self._descriptor, 1, self.size - 1) != b"\n":
            os.write(self._descriptor, b"\n")

    def cut(self, size: int) -> None:
        """Truncate the file to its first `size` bytes."""
        if size > self.size:
            raise RunFailed(
                f"{self.path} has {self.size} bytes, but {size} were safe when the checkpoint was written: the file "
                "has been cut or replaced. Put the right one back, or start a new run from the same recipe."
            )
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Force what was appended to the disk."""
        sync_descriptor(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


REQUIRED: dict[str, dict[str, type]] = {
    **{name: {"step": int} for name in ("events.jsonl", "stream.jsonl")},
    "memory.jsonl": {"step": int, "change": str},
    **{name: {"step": int, "stage": str} for name in ("metrics.jsonl", "timing.jsonl")},
    "evals.jsonl": {"step": int, "name": str},
    "history.jsonl": {"kind": str},
}
"""By journal of a run: what every entry has, by type."""
NUMBERS = ("metrics.jsonl", "timing.jsonl")
"""Journals in which all is a number but the name of the stage."""
INTERVAL = "_interval"
LARGEST = dict.fromkeys(("history.jsonl", "events.jsonl", "evals.jsonl"), 32 * 2**20)
"""Bytes at most of journals that have no line for each step."""
MOST_LINES = 1_000_000
"""Entries of a journal at most: each takes a kilobyte of memory."""
_TOGETHER = 1000
"""Lines that are read at once."""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Every finished line; none when the file is not there. Raises `UserError` for one that is not a JSON object."""
    lines = _lines(path)
    entries: list[dict[str, Any]] = []
    for first in range(0, len(lines), _TOGETHER):
        some = lines[first : first + _TOGETHER]
        entries += _objects(some, path) or list(_one_by_one(some, path, first + 1))
    return entries


def _lines(path: Path) -> list[bytes]:
    """The finished lines; none when the file is not there. Raises `UserError` for more than any run writes."""
    try:
        content = read_own(path, LARGEST.get(path.name, JOURNAL))
    except FileNotFoundError:
        return []
    count = content.count(b"\n")
    if count > MOST_LINES:
        raise UserError(
            f"{path} has {count:,} lines, and at most {MOST_LINES:,} are read: no run writes that many; inspect the "
            "file itself"
        )
    return content.split(b"\n")[:-1]


def _objects(lines: list[bytes], path: Path) -> list[dict[str, Any]]:
    """The entries of lines that are read as one document, in which a name is one object however often it is there;
    nothing where that is not possible.
    """
    if not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
        return []
    try:
        entries = json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError):
        return []
    return entries if len(entries) == len(lines) and all(_is_entry(entry, path) for entry in entries) else []


def _one_by_one(lines: list[bytes], path: Path, first: int) -> Iterator[dict[str, Any]]:
    """The entries of lines. Raises `UserError` for one that is none, with its number."""
    for number, line in enumerate(lines, start=first):
        entry = _object(line, path)
        if entry is None:
            raise UserError(
                f"{path} line {number} is not an entry of a run: the file has been edited, or the disk damaged it. "
                "After a power cut, posttrain resume puts it right"
            )
        yield entry


def sound_lines(path: Path) -> list[dict[str, Any]]:
    """Every finished line that is a JSON object; damaged ones are passed over."""
    return [entry for line in _lines(path) if (entry := _object(line, path)) is not None]


def sound_lines_after(path: Path, size: int) -> Iterator[dict[str, Any]]:
    """Every JSON object in a line after the first `size` bytes, of a file of any length. At most `JOURNAL` bytes are
    read, and `MOST_LINES` lines; what is damaged is passed over.
    """
    with path.open("rb") as file:
        file.seek(size)
        left = JOURNAL
        for _ in range(MOST_LINES):
            line = file.readline(left)
            left -= len(line)
            if not line.endswith(b"\n"):
                return
            entry = _object(line[:-1], path)
            if entry is not None:
                yield entry


def _object(line: bytes, path: Path) -> dict[str, Any] | None:
    """The entry in a line; None where there is none: no JSON object, or one that lacks what each entry has."""
    try:
        entry = parse_json(line.decode(), constants=True)
    except ValueError:
        return None
    return entry if _is_entry(entry, path) else None


def _is_entry(entry: Any, path: Path) -> bool:
    """Whether a value is an entry of this journal."""
    required = REQUIRED.get(path.name, {})
    if not isinstance(entry, dict) or any(type(entry.get(key)) is not kind for key, kind in required.items()):
        return False
    if path.name in NUMBERS:
        return all(key in required or _is_number(value) for key, value in entry.items())
    return path.name != "evals.jsonl" or _has_numbers_with_intervals(entry)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def _has_numbers_with_intervals(entry: Mapping[str, Any]) -> bool:
    """Whether what has an interval is a number, and each interval two of them; either may be missing."""
    for key, value in entry.items():
        if key.endswith(INTERVAL):
            is_interval = isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
            if not (value is None or is_interval) or not _is_number(entry.get(key.removesuffix(INTERVAL))):
                return False
    return True


def plain(value: Any) -> Any:
    """The value as JSON: numpy numbers become numbers, and numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy numbers and arrays
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r} cannot be written as JSON")
