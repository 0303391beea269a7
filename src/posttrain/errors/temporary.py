"""Temporary folders that do not outlive their process, and the removal of folders that a hostile program filled.

A process holds a lock on each of its temporary folders, which the kernel releases however it ends; so a folder of this
package without a lock is left over, and the next start of anything removes it (`sweep`). No number of a process
is compared: those are used again, and mean another process in another container.

`shutil.rmtree` recurses (it dies of a thousand nested folders) and takes paths (the kernel refuses those over 4096
bytes). Here every folder is entered by descriptor, and what lies deep is moved up first, so that depth stays two.
"""

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Final

PREFIX: Final = "posttrain-tmp-"
"""What the name of every temporary folder of this package begins with."""

_held: dict[Path, int] = {}
"""The folders of this process, and the descriptors that hold their locks."""


def make_temporary(kind: str) -> Path:
    """Make a temporary folder that this process holds until `remove_temporary`."""
    while True:
        path = Path(mkdtemp(prefix=f"{PREFIX}{kind}-"))
        held = _lock(path)
        if held is not None:
            _held[path] = held
            return path  # else a sweep had it before it was locked, and removes it


def remove_temporary(path: Path) -> None:
    """Remove a folder of this process, whatever is in it."""
    held = _held.pop(path, None)
    try:
        remove_tree(path)
    finally:
        if held is not None:
            os.close(held)


@contextlib.contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """A temporary folder for a while."""
    path = make_temporary(kind)
    try:
        yield path
    finally:
        remove_temporary(path)


def sweep() -> list[Path]:
    """Remove the temporary folders of processes that are no more; return them."""
    removed = []
    for path in Path(gettempdir()).glob(f"{PREFIX}*"):
        held = _lock(path) if path not in _held else None
        if held is not None:
            try:
                remove_tree(path)
                removed.append(path)
            except OSError:  # another user's
                continue
            finally:
                os.close(held)
    return removed


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock of a folder; None where another one does, or the folder is no more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def remove_tree(path: Path) -> None:
    """Remove a folder and all that is in it; nothing happens where there is none."""
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        path.unlink(missing_ok=True)
        return
    try:
        os.fchmod(top, 0o700)
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(path)


def _empty(top: int) -> None:
    """Remove everything in an open folder: what its folders hold is moved up into it, until none holds anything."""
    while names := _listed(top):
        for name in names:
            if _is_folder(name, top):
                _raise_folders(name, top)
                os.rmdir(name, dir_fd=top)
            else:
                os.unlink(name, dir_fd=top)


def _raise_folders(name: bytes, top: int) -> None:
    """Move the folders that are in a folder up beside it, and remove what else is in it."""
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        for child in _listed(inner):
            if _is_folder(child, inner):
                os.chmod(child, 0o700, dir_fd=inner)  # a folder that moves needs its '..' changed
                os.rename(child, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(child, dir_fd=inner)
    finally:
        os.close(inner)


def _listed(folder: int) -> list[bytes]:
    """Names in an open folder, whatever bytes they are."""
    return [os.fsencode(name) for name in os.listdir(folder)]


def _is_folder(name: bytes, folder: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
