"""The size of runs, and their removal."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from posttrain.errors import RunFailed, UserError
from posttrain.runs.folders import why_no_run
from posttrain.runs.lock import RunLock

MARKS: Final = ("recipe.yaml", "rollouts")
"""What a folder of a run has. They are removed last, so that a removal that was interrupted can be repeated."""


def is_run(folder: Path) -> bool:
    """Whether a folder is a run's."""
    return all(os.path.lexists(folder / name) for name in MARKS)


def bytes_of(folder: Path) -> int:
    """Bytes that a folder occupies on the disk. Links are counted and not followed."""
    return sum({(found.st_dev, found.st_ino): 512 * found.st_blocks for found in _entries(folder)}.values())


def _entries(folder: Path) -> Iterator[os.stat_result]:
    for place, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            try:
                yield os.lstat(os.path.join(place, name))
            except OSError:  # it went away meanwhile
                continue


def check_removable(folder: Path) -> None:
    """Raise `UserError` for what is no folder of a run, for a link to one, and for a run in progress."""
    if folder.is_symlink():
        raise UserError(f"{folder} is a link to {folder.resolve()}; name that folder to remove the run, or unlink it")
    if not folder.is_dir() or not is_run(folder):
        raise UserError(why_no_run(folder))
    RunLock(folder).release()


def remove(folder: Path) -> None:
    """Delete the folder of a run. Links in it are deleted, not what they lead to."""
    check_removable(folder)
    lock = RunLock(folder)
    try:
        for entry in [path for path in folder.iterdir() if path.name not in (*MARKS, ".lock")]:
            _delete(entry)
        for entry in [*_inside(folder / "rollouts"), folder / "recipe.yaml", folder / "rollouts", folder / ".lock"]:
            _delete(entry)
        folder.rmdir()
    except OSError as error:
        raise RunFailed(f"{error.filename or folder} cannot be removed: {error.strerror}") from None
    finally:
        lock.release()


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
