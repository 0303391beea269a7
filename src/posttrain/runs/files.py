"""Files of a run that must last: written whole, forced to the disk, and never through a link.

A power cut may lose whatever was not forced to the disk, contents and names independently of each other. So a file
that others rely on is written beside its place, synced, renamed and its folder synced, in this order; nothing else in
`posttrain.runs` opens a file for writing, renames one or makes a folder that must last (tests/runs/test_files.py).
Journals, which only grow, are `posttrain.runs.journal`.
"""

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from posttrain.errors import UserError

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REPLACED = ".old-"


def write_file(path: Path, content: str | bytes) -> None:
    """Replace a file atomically and durably: a power cut leaves the old one or the new one.

    A link in its place is replaced, not followed. Raises `OSError` and leaves no part of the new file.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        with open(os.open(temporary, _NEW, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            sync_descriptor(file.fileno())
        put_in_place(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a file its name. The name lasts once its folder is synced, the content once the file is."""
    os.replace(temporary, path)


def make_folder(path: Path) -> None:
    """Make a folder whose name is on the disk. Raises `OSError` where it is there already."""
    path.mkdir()
    sync(path.parent)


def replace_folder(temporary: Path, folder: Path) -> None:
    """Put a filled folder in the place of another one, or of none: after a power cut one of them is there, whole.

    `restore_folders` brings the old one back where the process was stopped between the two renames.
    """
    sync_tree(temporary)
    replaced = folder.with_name(_REPLACED + folder.name)
    shutil.rmtree(replaced, ignore_errors=True)
    if folder.exists():
        folder.rename(replaced)
        sync(folder.parent)  # before the new name: else a power cut could keep the deletion alone
    temporary.rename(folder)
    sync(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def restore_folders(parent: Path) -> list[Path]:
    """Name folders again that were moved aside for ones that then did not come; remove those whose successor did, and
    return them.
    """
    removed = []
    for path in sorted(parent.glob(f"{_REPLACED}*")):
        original = parent / path.name.removeprefix(_REPLACED)
        if original.exists():
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
        else:
            path.rename(original)
            sync(parent)
    return removed


def sync(path: Path) -> None:
    """Force a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def sync_descriptor(descriptor: int) -> None:
    """Force an open file's content to the disk."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync there stops at the drive's own cache
    else:
        os.fsync(descriptor)


def sync_tree(folder: Path) -> None:
    """Force everything in a folder to the disk, the folder last."""
    for path in sorted(folder.rglob("*"), key=lambda path: -len(path.parts)):
        sync(path)
    sync(folder)


def check_own_files(folder: Path) -> None:
    """Refuse a run in which anything is a link, a pipe or a device: writing there could change files elsewhere.

    Raises `UserError` that names the first one and what it is.
    """
    for path, mode in _walk(folder):
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            kind = f"a link to {os.readlink(path)!r}" if stat.S_ISLNK(mode) else "a pipe, a socket or a device"
            raise UserError(
                f"{path} is {kind}; a run holds files and folders of its own only, since what is written through "
                "anything else would land elsewhere. Put the file itself there, or remove it"
            )


def _walk(folder: Path) -> Iterator[tuple[Path, int]]:
    """Everything below a folder with its mode, links not followed."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            mode = entry.stat(follow_symlinks=False).st_mode
            yield Path(entry.path), mode
            if stat.S_ISDIR(mode):
                yield from _walk(Path(entry.path))
