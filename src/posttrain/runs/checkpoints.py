"""Checkpoint folders that survive a kill or a power cut at any moment.

A checkpoint is written into a temporary folder beside the others, listed with sizes and SHA-256 sums in
``manifest.json``, forced to the disk, and only then renamed to its name; the parent folder is forced to the disk last.
So a named folder is complete, unless the disk itself damages it, which the sums show.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from posttrain.errors import UserError
from posttrain.errors.foreign import parse_json
from posttrain.runs.failure import cannot_write, is_about_storage
from posttrain.runs.files import make_folder, replace_folder, restore_folders, sync, write_file
from posttrain.runs.reading import DOCUMENT, read_own

MANIFEST = "manifest.json"
_TEMPORARY = ".tmp-"


def save(
    folder: Path, name: str, write: Callable[[Path], None], keep: int, precious: Callable[[Path], bool] | None = None
) -> Path:
    """Write the checkpoint `name`, delete all but the newest `keep` and the newest `precious` one; return its folder.

    `write` fills the folder that it is given. A checkpoint of the same name is replaced. When this fails, the earlier
    checkpoints are as they were. Raises `RunFailed` for a full disk or a folder that has been deleted.
    """
    assert keep >= 1, "the checkpoint just written is always kept"
    assert not name.startswith(".") and Path(name).name == name, f"'{name}' is not a plain folder name"
    temporary = folder / f"{_TEMPORARY}{name}"
    try:
        if folder.parent.is_dir() and not folder.is_dir():  # a run that the user has deleted must not come back
            make_folder(folder)
        number = 1 + max((number for number, _ in _numbered(folder)), default=0)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        write(temporary)
        _seal(temporary, number)
        replace_folder(temporary, folder / name)
        paths = [path for _, path in _numbered(folder)]
        spared = next((path for path in paths if precious is not None and precious(path)), None)
        for path in paths[keep:]:
            if path != spared:
                _discard(path)
    except BaseException as error:
        about_storage = isinstance(error, Exception) and is_about_storage(error, temporary)
        shutil.rmtree(temporary, ignore_errors=True)
        restore_folders(folder)
        if about_storage:
            raise cannot_write(error, folder / name, folder.parent) from error
        raise
    return folder / name


def newest(
    folder: Path, on_bad: Callable[[Path, str], None], wanted: Callable[[Path], bool] | None = None
) -> Path | None:
    """The newest undamaged checkpoint that satisfies `wanted`, or None; calls `on_bad` with each damaged one that was
    passed over, and its damage.
    """
    numbered = _numbered(folder)
    known = {path for _, path in numbered}
    for path in _folders(folder):
        if path not in known:
            on_bad(path, f"its {MANIFEST} is missing or cannot be read")
    for _, path in numbered:
        damage = find_damage(path)
        if damage is not None:
            on_bad(path, damage)
        elif wanted is None or wanted(path):
            return path
    return None


def find_damage(checkpoint: Path) -> str | None:
    """The damage of a checkpoint, by the sizes and sums in its manifest; None if it is complete."""
    manifest = _manifest(checkpoint)
    if manifest is None:
        return f"its {MANIFEST} is missing or cannot be read"
    for name, expected in manifest["files"].items():
        path = checkpoint / name
        try:
            size = path.stat().st_size
            if size != expected["bytes"]:
                return f"{name} has {size} bytes instead of {expected['bytes']}"
            if _sha256(path) != expected["sha256"]:
                return f"{name} has changed: its SHA-256 sum is not the one in {MANIFEST}"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None


def sweep(folder: Path) -> list[Path]:
    """Remove unfinished folders of killed processes; returns them. No other process may save there meanwhile."""
    replaced = restore_folders(folder)
    unfinished = sorted(folder.glob(f"{_TEMPORARY}*"))
    for path in unfinished:
        shutil.rmtree(path, ignore_errors=True)
    return [*unfinished, *replaced]


def _seal(temporary: Path, number: int) -> None:
    """Write the manifest; `replace_folder` forces everything to the disk."""
    paths = sorted(path for path in temporary.rglob("*") if path.is_file())
    files = {
        path.relative_to(temporary).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in paths
    }
    manifest = temporary / MANIFEST
    write_file(manifest, json.dumps({"number": number, "files": files}, indent=1) + "\n")


def _discard(checkpoint: Path) -> None:
    """Delete a checkpoint; a kill or a power cut in the middle leaves no incomplete one under its name."""
    doomed = checkpoint.with_name(_TEMPORARY + checkpoint.name)
    checkpoint.rename(doomed)
    sync(checkpoint.parent)  # before its files go: else a power cut could keep their deletion alone
    shutil.rmtree(doomed)


def _folders(folder: Path) -> Iterator[Path]:
    """Named folders in a checkpoints folder, damaged ones included."""
    if folder.is_dir():
        yield from sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    """Checkpoints with their running number, newest first."""
    manifests = [(path, _manifest(path)) for path in _folders(folder)]
    return sorted(((m["number"], path) for path, m in manifests if m is not None), reverse=True)


def _manifest(checkpoint: Path) -> dict[str, Any] | None:
    """The manifest of a checkpoint; None when it is missing or not one."""
    try:
        manifest = parse_json(read_own(checkpoint / MANIFEST, DOCUMENT).decode())
        sound = isinstance(manifest["number"], int) and all(
            isinstance(f["bytes"], int) and isinstance(f["sha256"], str) for f in manifest["files"].values()
        )
    except (OSError, UserError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return manifest if sound else None


def _sha256(path: Path) -> str:
    """Hexadecimal SHA-256 sum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
