"""Removes a folder that a hostile program filled, at any depth, and never through a link.

`shutil.rmtree` recurses (it dies of a thousand nested folders) and takes paths (the kernel refuses those over 4096
bytes). Here every folder is entered by descriptor, and what lies deep is moved up first, so that depth stays two.
"""

import os
import secrets
import stat
from pathlib import Path


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
