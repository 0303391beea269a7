"""Sources of tasks: files, data sets, generators.

Contract: `Tasks.load` is deterministic, and its keys are unique and stable. A larger number of generated tasks never
changes the first ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from posttrain.component import Component
from posttrain.types import Task


class Tasks(Component):
    """A source of tasks."""

    RENAMED_KINDS: ClassVar = {"checked_workings": "checked_solutions", "workings": "worked_solutions"}

    def load(self) -> Sequence[Task]:
        """Every task of the source, in a fixed order. Raises `UserError` with file and line for a bad row."""
        raise NotImplementedError

    def describe(self) -> str:
        """A few lines for the terminal: columns with the role of each, and counts."""
        return ""

    def place(self, key: str) -> str:
        """File and line of the row of a task, for messages; empty for tasks that are not read from rows."""
        return ""

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """SHA-256 of each of the user's files that tasks are made from, by path, nested sources included."""
        found: dict[str, str] = {}
        for value in vars(self).values():
            for part in _parts(value):
                found |= part.fingerprint if isinstance(part, Tasks) else {}
        return found

    @property
    def allows_special_tokens(self) -> bool:
        """Whether texts of special tokens in its rows stand for special tokens; true if that of a nested source is."""
        values = [part for value in vars(self).values() for part in _parts(value)]
        return any(part.allows_special_tokens for part in values if isinstance(part, Tasks))

    @classmethod
    def from_text(cls, text: str) -> Mapping[str, Any]:
        """A path or data set name becomes the ``files`` kind; a known kind stays itself."""
        return {"kind": text} if text in (*cls.kinds(), *cls.RENAMED_KINDS) else {"kind": "files", "path": text}


def _parts(value: Any) -> Sequence[Any]:
    """The values of a mapping, or the value itself."""
    return list(value.values()) if isinstance(value, Mapping) else [value]
