"""Finds runs in the viewer's folders."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from posttrain.errors import UserError
from posttrain.runs.folders import why_no_run

DEPTH = 4
"""Folders within folders that are searched: `posttrain compare` keeps runs two deep."""


class Library:
    """Runs by the names that addresses call them by."""

    def __init__(self, places: Sequence[Path]) -> None:
        """Each place is a run, or a folder that holds runs. Raises `UserError` for one that is neither."""
        for place in places:
            if not place.is_dir() or not any(_runs_in(place)):
                raise UserError(why_no_run(place))
        self._places = [place.absolute() for place in places]

    def runs(self) -> dict[str, Path]:
        """The folder of every run, those that were written to last first.

        A name is the path below the place, with ``~`` for its slashes, and a number where two would be the same.
        """
        found: dict[str, Path] = {}
        for place in self._places:
            for folder in _runs_in(place):
                below = folder.relative_to(place).parts or (folder.name,)
                plain = name = "~".join(below)
                number = 2
                while found.get(name, folder) != folder:
                    name, number = f"{plain}({number})", number + 1
                found[name] = folder
        return dict(sorted(found.items(), key=lambda item: _last_change(item[1]), reverse=True))


def _runs_in(place: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Folders of runs at a place and below it; what lies within a run is not looked at."""
    if is_run(place):
        yield place
    elif depth:
        with os.scandir(place) as entries:
            below = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        for name in below:
            yield from _runs_in(place / name, depth - 1)


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return (folder / "recipe.yaml").is_file() and (folder / "rollouts").is_dir()


def _last_change(folder: Path) -> float:
    """When something was last recorded."""
    changes = [path.stat().st_mtime for name in ("metrics.jsonl", "recipe.yaml") if (path := folder / name).exists()]
    return max(changes, default=0.0)
