"""A lock that lets one process at a time write to a run."""

import fcntl
import os
import socket
from pathlib import Path

from posttrain.errors import UserError

_held: set[Path] = set()
"""Runs that this process writes to. It must not open their lock files again: closing one would release the lock."""


def is_locked(run: Path) -> bool:
    """Whether a process writes to a run, as far as this one can find out."""
    path = run / ".lock"
    if path.absolute() in _held:
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


class RunLock:
    """A lock file held by this process; the system releases it when the process ends in any way.

    It belongs to the process and not to the open file, so that a forked worker which outlives a killed run does not
    hold it.
    """

    def __init__(self, run: Path) -> None:
        """Takes the lock. Raises `UserError` that names the process that holds it."""
        path = run / ".lock"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._descriptor, 200).decode(errors="replace") or "another process"
            os.close(self._descriptor)
            if not isinstance(error, BlockingIOError | PermissionError):
                raise
            raise UserError(
                f"the run {run} is in use by {holder}; two processes cannot write to one run. "
                "Wait until that one has ended, or stop it (it saves first), and try again"
            ) from None
        self._path = path.absolute()
        _held.add(self._path)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        _held.discard(self._path)
        os.close(self._descriptor)
