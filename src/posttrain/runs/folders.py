"""Run folders: the next free name, the nearest name, and missing files."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from posttrain.errors import RunFailed, UserError
from posttrain.runs.files import make_folder


def make_run_folder(root: Path, name: str) -> Path:
    """Make ``root/name-n``, on the disk, with the lowest n that is above all there are."""
    try:
        for parent in reversed([root, *root.parents]):
            if not parent.exists():
                make_folder(parent)
        taken = [re.fullmatch(re.escape(name) + r"-(\d+)", path.name) for path in root.iterdir()]
    except OSError as error:
        raise UserError(f"no run can be kept in {root}: {error.strerror}; choose another folder for runs") from None
    number = 1 + max((int(match[1]) for match in taken if match), default=0)
    while True:
        folder = root / f"{name}-{number}"
        try:
            make_folder(folder)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise RunFailed(f"cannot make the folder {folder}: {error.strerror}. Nothing was started") from None


def why_no_run(folder: Path) -> str:
    """Why a folder cannot be opened, and which runs there are near it."""
    problem = f"{folder} is not a run: it holds no recipe.yaml" if folder.is_dir() else f"there is no run {folder}"
    around = folder.parent if folder.name else folder.absolute().parent  # named as the folder was
    runs = [path.parent for path in around.glob("*/recipe.yaml")] if around.is_dir() else []
    runs += [path.parent for path in folder.glob("*/recipe.yaml")] if folder.is_dir() else []
    by_name = {path.name: path for path in sorted(runs)}
    if not by_name:
        return f"{problem}, and there are no runs in {around.absolute()}"
    close = difflib.get_close_matches(folder.name, by_name, n=3, cutoff=0.4)
    newest = sorted(by_name, key=lambda name: by_name[name].stat().st_mtime, reverse=True)[:3]
    return f"{problem}; did you mean {' or '.join(str(by_name[name]) for name in close or newest)}?"


def name_missing(evals: Sequence[int], without: Sequence[int], rollouts: int) -> str:
    """The message about lost tables: `evals` of these steps, `rollouts` of those `without`. Empty if none is lost."""
    gone = [f"evals/step_{step:06d}.parquet" for step in evals]
    if rollouts > 0 and rollouts == len(without):
        gone += [f"rollouts/step_{step:06d}.parquet" for step in without]
    elif rollouts > 0:  # some steps never had any, so which are lost is unknown
        gone.append(f"{rollouts} files of rollouts/")
    if not gone:
        return ""
    named = ", ".join(gone[:5]) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
    return (
        f"gone since they were written: {named}. What is learned does not depend on them, so the run goes on; "
        "its record and report lack them, and what later evaluations compare with them"
    )
