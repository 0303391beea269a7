"""Where problems come from: files, data sets, generators.

Contract: `Tasks.load` is deterministic, its keys are unique and stable, and asking for more generated tasks never
changes the ones before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.component import Component
from posttrain.types import Task


class Tasks(Component):
    """A source of tasks."""

    def load(self) -> Sequence[Task]:
        """Every task of the source, in a fixed order. Raises `UserError` with file and line for a bad row."""
        raise NotImplementedError

    def describe(self) -> str:
        """What was found (columns, counts, what they were taken for), in a few lines for the terminal."""
        return ""

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """SHA-256 of each of the user's own files that tasks are made from, by path; those of sources inside too."""
        found: dict[str, str] = {}
        for value in vars(self).values():
            for part in _parts(value):
                found |= part.fingerprint if isinstance(part, Tasks) else {}
        return found

    @property
    def allows_special_tokens(self) -> bool:
        """Whether the texts of special tokens in its rows are meant as special tokens; sources inside are asked too."""
        values = [part for value in vars(self).values() for part in _parts(value)]
        return any(part.allows_special_tokens for part in values if isinstance(part, Tasks))

    @classmethod
    def from_text(cls, text: str) -> Mapping[str, Any]:
        """A path or data set name becomes the ``files`` kind; a known kind stays itself."""
        return {"kind": text} if text in (*cls.kinds(), *cls.RENAMED_KINDS) else {"kind": "files", "path": text}


def _parts(value: Any) -> Sequence[Any]:
    """The values of a mapping, or the value itself."""
    return list(value.values()) if isinstance(value, Mapping) else [value]
