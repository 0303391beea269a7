"""An append-only file of JSON lines that survives a kill at any moment.

A line goes to the system in one write, so a killed process leaves at most its last line unfinished. What is unfinished
is not a line: readers pass over it and the next writer cuts it off.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.errors import RunFailed, UserError
from posttrain.runs.failure import cannot_write


class Journal:
    """One such file of a run, open for appending."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it; raises `RunFailed` when neither can be done."""
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
        """Add one line. Raises `RunFailed` when it cannot be written, and leaves no part of it."""
        line = (json.dumps(plain(entry), allow_nan=False) + "\n").encode("ascii")
        size = self.size
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):  # a disk that is just full takes a part; asking again gives the reason
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            os.ftruncate(self._descriptor, size)
            raise cannot_write(error, self.path, self.path.parent) from error
        if os.fstat(self._descriptor).st_nlink == 0:  # writing to a deleted file succeeds, and is lost
            raise cannot_write(FileNotFoundError("it has been deleted"), self.path, self.path.parent)

    def drop_unfinished(self) -> int:
        """Cut off a line without an end; return its bytes."""
        size = self.size
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        os.ftruncate(self._descriptor, whole)
        return size - whole

    def cut(self, size: int) -> None:
        """Forget everything after the first `size` bytes."""
        if size > self.size:
            raise RunFailed(
                f"{self.path} has {self.size} bytes, but {size} were safe when the checkpoint was written: the file "
                "has been cut or replaced. Put the right one back, or start a new run from the same recipe."
            )
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Force what was appended to the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """No more will be appended."""
        os.close(self._descriptor)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Every finished line; none when the file is not there. Raises `UserError` for one that is not a JSON object."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise UserError(
                f"{path} line {number} is not a JSON object: the file has been edited, or the disk damaged it"
            )
        entries.append(entry)
    return entries


def plain(value: Any) -> Any:
    """The value as JSON has it: numpy numbers become numbers, and what is not finite becomes null."""
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
