"""Results of a sweep in a file, so that a sweep that was interrupted goes on where it was."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from posttrain.errors import UserError
from posttrain.errors.foreign import guard, read_json
from posttrain.runs.files import write_file


class Content(TypedDict):
    """What the file holds."""

    settings: dict[str, Any]
    results: dict[str, dict[str, Any]]


_CONTENT = TypeAdapter(Content)


class Results:
    """The results of a sweep by name, in a file or, without one, in memory."""

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        """`settings` is all that a result depends on besides its name, as JSON.

        Raises `UserError` for a file that is not that of a sweep, or has other settings.
        """
        self._path, self._settings = path, dict(settings)
        self._results: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        if not path.absolute().parent.is_dir():
            raise UserError(f"no folder {path.parent} to keep {path.name} in (working in {Path.cwd()}); make it first")
        if not path.exists():
            return
        with guard(f"'{path}' does not hold the results of a sweep"):
            found = _CONTENT.validate_python(read_json(path))
        for name, value in self._settings.items():
            if found["settings"].get(name) != value:
                raise UserError(
                    f"'{path}' holds results of other {name}: {found['settings'].get(name)}, and not {value}; name "
                    "another file, or remove it"
                )
        self._results = found["results"]

    def get(self, name: str) -> Mapping[str, Any] | None:
        """A result; None where it is not known."""
        return self._results.get(name)

    def put(self, name: str, result: Mapping[str, Any]) -> None:
        """Keep a result. It is on the disk before the next one is measured."""
        self._results[name] = dict(result)
        if self._path is not None:
            write_file(self._path, json.dumps({"settings": self._settings, "results": self._results}, indent=1) + "\n")
