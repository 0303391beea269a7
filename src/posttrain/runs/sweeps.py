"""Results of a sweep in a file, so that a sweep that was interrupted goes on where it was."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from posttrain.errors import UserError
from posttrain.errors.foreign import read_json, shown
from posttrain.runs.files import write_file

R = TypeVar("R")


class Results(Generic[R]):
    """The results of a sweep, each a dataclass, by name; in a file or, without one, in memory."""

    def __init__(self, kind: type[R], name: Callable[[R], str], path: Path | None, settings: Mapping[str, Any]) -> None:
        """`name` is that of a result; `settings` is all that one depends on besides its name, as JSON.

        Raises `UserError` for a file that is not that of a sweep, or has other settings.
        """
        self._name, self._path = name, path
        self._settings: dict[str, Any] = {}
        self._kept: dict[str, Any] | None = None
        self._results: dict[str, R] = {}
        if path is None:
            return
        if not path.absolute().parent.is_dir():
            raise UserError(f"no folder {path.parent} to keep {path.name} in (working in {Path.cwd()}); make it first")
        if path.exists():
            self._read(path, kind)
        self.match(settings)

    def match(self, settings: Mapping[str, Any]) -> None:
        """Add settings. Raises `UserError` where the file has results of others."""
        for name, value in settings.items():
            if self._kept is not None and self._kept.get(name) != value:
                raise UserError(
                    f"'{self._path}' holds results of other {name}: {shown(self._kept.get(name))}, and not {value}; "
                    "name another file, or remove it"
                )
        self._settings.update(settings)

    def get(self, name: str) -> R | None:
        """A result; None where it is not known."""
        return self._results.get(name)

    def put(self, result: R) -> None:
        """Keep a result. It is on the disk before the next one is measured."""
        self._results[self._name(result)] = result
        if self._path is not None:
            results = {name: vars(one) for name, one in self._results.items()}
            write_file(self._path, json.dumps({"settings": self._settings, "results": results}, indent=1) + "\n")

    def _read(self, path: Path, kind: type[R]) -> None:
        """Take what the file holds. Raises `UserError` for what no sweep has written."""
        advice = "name another file, or remove it"
        found = read_json(path)
        for part in ("settings", "results"):
            if not isinstance(found.get(part), dict):
                raise UserError(
                    f"'{path}' does not hold the results of a sweep: {part} is {shown(found.get(part), 80)}, and not "
                    f"an object; {advice}"
                )
        one = TypeAdapter(kind)
        self._kept = found["settings"]
        for name, value in found["results"].items():
            try:
                result = one.validate_json(json.dumps(value), strict=True)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join(map(str, ("results", name, *first["loc"])))
                got = "missing" if first["type"] == "missing" else shown(repr(first["input"]), 80)
                raise UserError(f"'{path}': {shown(place)} is {got}: {first['msg']}; {advice}") from None
            if self._name(result) != name:
                raise UserError(
                    f"'{path}': results.{shown(name, 80)} is the result of {shown(self._name(result), 80)}; {advice}"
                )
            self._results[name] = result
