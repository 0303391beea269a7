"""Reads files of a run that may be damaged, or from elsewhere.

A run holds regular files of its own: a link, a pipe or a device in it is refused, so that nothing elsewhere is read and
nothing waits for a writer. A file of absurd size is refused before it is read.
"""

import errno
import os
import pickle
import re
import stat
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from posttrain.errors import UserError

DOCUMENT: Final = 16 * 2**20
"""Bytes of a recipe, a summary or an environment at most."""
JOURNAL: Final = 256 * 2**20
"""Bytes of a journal at most: a line of a step has about one kilobyte."""
STEP: Final = re.compile(r"step_([0-9]{1,9})\.parquet")


def read_own(path: Path, most: int) -> bytes:
    """A file of a run. Raises `FileNotFoundError`, or `UserError` for what is no file of the run's own or too large."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise UserError(f"{path} cannot be read: {why}") from None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"{path} cannot be read: it is no regular file")
        if found.st_size > most:
            raise UserError(
                f"{path} has {found.st_size / 2**20:,.0f} MiB, and at most {most / 2**20:,.0f} MiB are read: no run "
                "writes so much; inspect the file itself"
            )
        return file.read(most)


def read_yaml(path: Path) -> Any:
    """The value of a YAML file of a run, the caller's own. Raises the errors of `read_own` and those of YAML.

    A report and a viewer ask for a run's recipe many times; its text is parsed once, which takes some 50 ms.
    """
    return pickle.loads(_parsed(read_own(path, DOCUMENT)))


@lru_cache(maxsize=32)
def _parsed(text: bytes) -> bytes:
    """The value of a YAML text, pickled."""
    from ruamel.yaml import YAML

    return pickle.dumps(YAML(typ="safe", pure=True).load(text))


def step_files(folder: Path) -> dict[int, Path]:
    """The tables of a folder by step, in order; what is no such table, or a link to one, is left out."""
    if folder.is_symlink() or not folder.is_dir():
        return {}
    with os.scandir(folder) as entries:
        named = [(STEP.fullmatch(entry.name), entry) for entry in entries]
        found = {int(match[1]): entry.path for match, entry in named if match and entry.is_file(follow_symlinks=False)}
    return {step: Path(found[step]) for step in sorted(found)}
