"""Errors of storage in one sentence: what failed, what is safe, how to continue."""

import errno
import os
from pathlib import Path

from posttrain.errors import RunFailed

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file system allows no file as large as this",
    errno.EROFS: "the file system has become read-only",
    errno.EIO: "the disk reports an input/output error",
    errno.EACCES: "permission to write there was refused",
    errno.EPERM: "permission to write there was refused",
}
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REMEDIES = {errno.ENOSPC: "Free some space", errno.EDQUOT: "Free some space"}


def cannot_write(error: BaseException, path: Path, run: Path) -> RunFailed:
    """The failure to raise when `path` of the run could not be written."""
    if not run.is_dir():
        return RunFailed(
            f"cannot write {path}: the folder {run} has been deleted or moved while the run was using it. "
            f"If it was moved, put it back and continue with: posttrain resume {run}"
        )
    number = error_number(error)
    reason = _REASONS.get(number, str(error) or type(error).__name__)
    remedy = _REMEDIES.get(number, "Put that right")
    return RunFailed(
        f"cannot write {path}: {reason}. Everything up to the newest checkpoint in {run / 'checkpoints'} is safe. "
        f"{remedy}, then continue with: posttrain resume {run}"
    )


def error_number(error: BaseException) -> int:
    """The operating system's number for an error; 0 when it has none.

    Libraries written in other languages raise their own types, with the number only in the text, if at all.
    """
    if isinstance(error, OSError):
        return error.errno or 0
    text = str(error).lower()
    return next((n for n in _REASONS if f"os error {n}" in text or os.strerror(n).lower() in text), 0)


def is_about_storage(error: BaseException, folder: Path) -> bool:
    """Whether an error that a writer raised comes from the disk under `folder` and not from a mistake in the code."""
    if isinstance(error, OSError) or error_number(error) or not folder.is_dir():
        return True
    usage = os.statvfs(folder)
    return usage.f_bavail * usage.f_frsize < 4096 or usage.f_favail == 0 < usage.f_files
