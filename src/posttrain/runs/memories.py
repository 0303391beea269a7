"""The memory of a reward in a run's record: ``memory.jsonl``, to which each checkpoint adds what has changed.

A reward may keep much, such as all thoughts of a run. Its memory at a checkpoint is the result of all lines of the file
up to the size that the checkpoint has (`RunStore.position`). A line after it, of a process that was killed before the
checkpoint was complete, is cut off when the run is resumed. The checkpoint has the SHA-256 of the result.
"""

import hashlib
import json
from typing import Any, Final

from posttrain.errors import UserError
from posttrain.errors.foreign import parse_json
from posttrain.runs.reading import JOURNAL, read_own
from posttrain.runs.store import MEMORY, RunStore
from posttrain.stages.memory import applied, difference

INLINE: Final = 64 * 1024
"""Bytes of JSON up to which a memory is in the checkpoint itself."""
APPENDED: Final = "appended"
"""The only key of an object that stands for the memory of the file."""


class Memories:
    """The memory of the reward of one run, as the file has it."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._known: tuple[int, str] = (0, "null")
        """Bytes of the file, and the memory that they lead to, as JSON."""

    def keep(self, step: int, memory: Any) -> Any:
        """What stands for a packed memory in a checkpoint: itself, where it is small, or the digest of what is kept."""
        text = json.dumps(memory)
        if len(text) <= INLINE:
            return memory
        size = self._store.position_of(MEMORY)
        if self._known[0] != size:
            self._known = (size, self._read(size))
        change = json.dumps(difference(_parsed(self._known[1]), _parsed(text)))
        if len(change) >= len(text):
            change = json.dumps({"set": _parsed(text)})
        if change != "null":
            size = self._store.log_memory(step, change)
        self._known = (size, text)
        return {APPENDED: _digest(text)}

    def find(self, kept: Any, size: int) -> Any:
        """The packed memory of a checkpoint that was saved when the file had this size.

        Raises `UserError` where the file does not lead to it.
        """
        if not isinstance(kept, dict) or kept.keys() != {APPENDED}:
            return kept
        text = self._read(size)
        if _digest(text) != kept[APPENDED]:
            raise UserError(
                f"{self._store.folder / MEMORY} does not lead to the memory of the checkpoint: it was edited, or the "
                "disk damaged it. Put the right file back, or start a new run from the same recipe"
            )
        self._known = (size, text)
        return _parsed(text)

    def _read(self, size: int) -> str:
        """The memory that the first `size` bytes lead to, as JSON; no line is left out."""
        path = self._store.folder / MEMORY
        memory: Any = None
        try:
            content = read_own(path, JOURNAL)[:size] if size else b""
            for line in content.split(b"\n")[:-1]:
                memory = applied(memory, _parsed(parse_json(line.decode())["change"]))
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            raise UserError(
                f"{path} is damaged: a line of it is no change of a memory; put the right file back"
            ) from None
        return json.dumps(memory)


def memories_of(store: RunStore) -> Memories:
    """Those of an open run."""
    if not isinstance(store.memories, Memories):
        store.memories = Memories(store)
    found: Memories = store.memories
    return found


def _parsed(text: str) -> Any:
    """A JSON text in which numbers may be NaN or infinite."""
    return parse_json(text, constants=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
