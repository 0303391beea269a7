"""What a process does to the files of a run, written down as it happens.

Python announces opening, renaming, removing, making folders and cutting by audit hooks; syncs are caught in `os.fsync`.
At each of these the whole folder is read and compared with what was last seen, so that whatever was written in between
is in the trace too, by native code as well (DuckDB, safetensors, tokenizers): its bytes, new and removed names. Not
seen: syncs by native code, which the trace therefore lacks (crash states are then worse than they could be), and the
order of writes between two announcements, which no crash state depends on, since none of them was synced.
"""

import base64
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Operation = tuple[Any, ...]
"""``(kind, path, ...)``: mkdir, create, unlink, rmdir, sync; rename with the new path; truncate with the size; write
with offset and bytes; saved and ended with what was reported. Paths are relative to the folder that is watched."""
Tree = dict[str, bytes | None]
"""Files with their content, folders with none, by path."""


def read_tree(folder: Path) -> Tree:
    """Everything below a folder, folders before what is in them."""
    found: Tree = {}
    waiting = [folder] if folder.is_dir() else []
    while waiting:
        for entry in sorted(os.scandir(waiting.pop()), key=lambda entry: entry.name):
            path = Path(entry.path)
            found[str(path.relative_to(folder))] = None if entry.is_dir(follow_symlinks=False) else path.read_bytes()
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
    return found


def read_trace(path: Path) -> list[Operation]:
    """The operations in a trace file."""
    operations: list[Operation] = []
    for line in path.read_text().splitlines():
        operation = json.loads(line)
        if operation[0] == "write":
            operation[3] = base64.b64decode(operation[3])
        operations.append(tuple(operation))
    return operations


class Recorder:
    """Appends the operations of this process on a folder to a trace file."""

    def __init__(self, folder: Path, trace: Path, known: Tree) -> None:
        """`known` is the folder at the end of the trace until now."""
        self.folder, self.known = folder.absolute(), known
        self._trace = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._busy = False

    def start(self) -> None:
        """Record from now on, until the process ends."""
        fsync = os.fsync

        def sync(descriptor: int) -> None:
            path = self._relative(descriptor)
            self._look()
            fsync(descriptor)
            if path is not None:
                self._write("sync", path)

        os.fsync = sync
        sys.addaudithook(self._announced)

    def report(self, kind: str, detail: str = "") -> None:
        """Record that something was reported: ``saved`` with the name of a checkpoint, or ``ended``."""
        self._look()
        self._write(kind, detail)

    def _announced(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._busy or not (event == "open" or event in _ACTS) or not arguments:
            return
        opened = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2, "os.rename": 2}.get(event)
        path = self._relative(arguments[0], arguments[opened] if opened else -1)
        if path is None:
            return
        self._look()
        act = _ACTS.get(event)
        if act is not None:
            act(self, path, arguments)

    def _relative(self, place: Any, opened: int = -1) -> str | None:
        """A path, one within an opened folder, or a descriptor as a path in the folder that is recorded, ``.`` for
        that itself; None for what lies elsewhere.
        """
        if isinstance(place, str | bytes) and opened >= 0:
            place = os.path.join(os.readlink(f"/proc/self/fd/{opened}"), os.fsdecode(place))
        if isinstance(place, int):
            try:
                place = os.readlink(f"/proc/self/fd/{place}")
            except OSError:
                return None
        if not isinstance(place, str | bytes | os.PathLike):
            return None
        path = Path(os.path.abspath(os.fsdecode(place)))
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else None

    def _rename(self, path: str, arguments: tuple[Any, ...]) -> None:
        target = self._relative(arguments[1])
        assert target is not None, f"{path} is moved out of the folder that is recorded"
        if path in self.known:
            below = f"{path}/"
            moved = {p: c for p, c in self.known.items() if p == path or p.startswith(below)}
            self.known = {p: c for p, c in self.known.items() if p not in moved}
            self.known |= {target + p[len(path) :]: content for p, content in moved.items()}
            self._write("rename", path, target)

    def _remove(self, path: str, arguments: tuple[Any, ...]) -> None:
        if path in self.known:
            self._write("rmdir" if self.known[path] is None else "unlink", path)
            del self.known[path]

    def _make(self, path: str, arguments: tuple[Any, ...]) -> None:
        if path not in self.known and str(Path(path).parent) in {*self.known, "."}:
            self.known[path] = None
            self._write("mkdir", path)

    def _cut(self, path: str, arguments: tuple[Any, ...]) -> None:
        content = self.known.get(path)
        if content is not None:
            self._write("truncate", path, arguments[1])
            self.known[path] = content[: arguments[1]].ljust(arguments[1], b"\0")

    def _look(self) -> None:
        """Record what has become different since the last look."""
        self._busy = True
        try:
            now = read_tree(self.folder)
        finally:
            self._busy = False
        for path in sorted(self.known.keys() - now.keys(), reverse=True):  # what is in a folder before the folder
            self._write("rmdir" if self.known[path] is None else "unlink", path)
        for path, content in now.items():
            if path not in self.known:
                self._write("mkdir" if content is None else "create", path)
            if content is not None and content != self.known.get(path):
                self._difference(path, self.known.get(path) or b"", content)
        self.known = now

    def _difference(self, path: str, before: bytes, now: bytes) -> None:
        if len(now) < len(before):
            self._write("truncate", path, len(now))
        same, different = 0, min(len(before), len(now)) + 1
        while different - same > 1:
            middle = (same + different) // 2
            same, different = (middle, different) if before[:middle] == now[:middle] else (same, middle)
        if same < len(now):
            self._write("write", path, same, now[same:])

    def _write(self, kind: str, *details: Any) -> None:
        plain = [base64.b64encode(d).decode() if isinstance(d, bytes) else d for d in details]
        os.write(self._trace, (json.dumps([kind, *plain]) + "\n").encode())


_ACTS: dict[str, Callable[[Recorder, str, tuple[Any, ...]], None]] = {
    "os.rename": Recorder._rename,
    "os.remove": Recorder._remove,
    "os.rmdir": Recorder._remove,
    "os.mkdir": Recorder._make,
    "os.truncate": Recorder._cut,
}


def count_kinds(operations: Sequence[Operation]) -> dict[str, int]:
    """How many operations there are of each kind."""
    kinds = [operation[0] for operation in operations]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
