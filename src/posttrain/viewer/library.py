"""Finds runs in the viewer's folders."""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from posttrain.errors import UserError
from posttrain.runs.folders import why_no_run
from posttrain.runs.inventory import is_run

DEPTH = 4
"""Levels of folders that are searched; `posttrain compare` keeps runs at the second."""


class Library:
    """Runs by the names that addresses use."""

    def __init__(self, places: Sequence[Path]) -> None:
        """Each place is a run, or a folder that holds runs. Raises `UserError` for one that is neither."""
        for place in places:
            if not place.is_dir() or not any(_runs_in(place)):
                raise UserError(why_no_run(place))
        self._places = [place.absolute() for place in places]

    def runs(self) -> dict[str, Path]:
        """The folder of every run, the most recently written first.

        A name is the path below the place with ``~`` in place of slashes. Where several have the same, each gets six
        digits of its own whole path, so that an address never leads to another run.
        """
        plain: dict[str, dict[Path, None]] = {}
        for place in self._places:
            for folder in _runs_in(place):
                below = folder.relative_to(place).parts or (folder.name,)
                plain.setdefault(os.fsencode("~".join(below)).decode("utf-8", "replace"), {})[folder] = None
        found = {
            name if len(folders) == 1 else distinct(name, folder): folder
            for name, folders in plain.items()
            for folder in folders
        }
        return dict(sorted(found.items(), key=lambda item: last_change(item[1]), reverse=True))

    def find(self, name: str) -> tuple[str, Path] | None:
        """Name and folder of a run, also by its distinct name where none other has its plain one."""
        found = self.runs()
        if name in found:
            return name, found[name]
        return next(((own, folder) for own, folder in found.items() if distinct(own, folder) == name), None)


def distinct(name: str, folder: Path) -> str:
    """A name with digits of the run's path: the same whatever other runs there are."""
    return f"{name}({hashlib.blake2b(os.fsencode(folder.absolute()), digest_size=3).hexdigest()})"


def _runs_in(place: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Folders of runs at a place and below it. Folders within a run are not searched."""
    if is_run(place):
        yield place
    elif depth:
        try:
            with os.scandir(place) as entries:
                folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return  # it cannot be listed, so nothing in it can be shown
        for name in sorted(name for name in folders if not name.startswith(".")):
            yield from _runs_in(place / name, depth - 1)


def last_change(folder: Path) -> float:
    """When something was last recorded."""
    changes = [0.0]
    for name in ("metrics.jsonl", "recipe.yaml"):
        with contextlib.suppress(OSError):
            changes.append((folder / name).lstat().st_mtime)
    return max(changes)
