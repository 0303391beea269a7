"""Computes a run again from its journal of samples (`schedule=streaming`), and compares the weights."""

import filecmp
from pathlib import Path
from typing import Any

from posttrain.errors import RunFailed, UserError
from posttrain.recipes.files import find_recipe
from posttrain.runs.changes import MODEL_FILES
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.store import STREAM, RunStore


def replay(folder: Path, root: Path, view: LiveView) -> tuple[Path, dict[str, Any]]:
    """Run the recipe of a run in a new folder under `root`, with the pieces and batches of its journal.

    Returns the new folder and its summary. Raises `UserError` for a run without a journal or that has not ended, and
    `RunFailed` where the weights at the end are not the same.
    """
    with RunStore.open(folder, reading=True) as store:
        journal = store.stream()
        anew = [entry["step"] for entry in store.metrics() if entry.get("episodes_anew")]
    kept = all("anew" in entry for entry in journal)
    if not journal:
        raise UserError(
            f"{folder} has no {STREAM}: only runs with schedule=streaming have an order of samples of their own. Any "
            f"other run is repeated by: posttrain run {folder / 'recipe.yaml'}"
        )
    if anew and not kept:
        raise UserError(
            f"{folder} cannot be computed again: in step {anew[0]} episodes started anew, since their environment did "
            "not answer as before, and an earlier version, which wrote this run, did not keep what it answered then"
        )
    if not (folder / "model").is_dir():
        raise UserError(f"{folder} has not ended, so there are no weights to compare with: posttrain resume {folder}")
    recipe = find_recipe(str(folder / "recipe.yaml"))
    new, summary = start(recipe, root, view, replayed=journal, followed=folder)
    if different := different_files(folder / "model", new / "model"):
        raise RunFailed(
            f"{new} has other weights than {folder}: {', '.join(different)} differ. Versions, threads and machine "
            "decide about the last bits: compare environment.json of both"
        )
    return new, summary


def different_files(one: Path, other: Path) -> list[str]:
    """Files of weights that are not the same in two folders."""
    names = {path.name for folder in (one, other) for path in folder.iterdir() if path.suffix.lower() in MODEL_FILES}
    _, different, missing = filecmp.cmpfiles(one, other, sorted(names), shallow=False)
    return sorted([*different, *missing])
