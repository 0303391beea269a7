"""Rehearsals: one step of each stage of a recipe in a temporary folder, to check names of measures before the runs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from posttrain.errors import UserError
from posttrain.errors.temporary import temporary_folder
from posttrain.recipes.overrides import to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.files import write_file
from posttrain.runs.measures import measure
from posttrain.runs.store import RunStore

HOLDOUT = 8
"""Held-out tasks of a rehearsal."""


def check_measures(
    recipes: Mapping[str, tuple[Recipe, Sequence[Path]]], names: Sequence[str], report: Callable[[str], None]
) -> None:
    """Raise `UserError` for a measure that a recipe's runs will not have.

    `recipes` are by label, each with its finished runs; one without any is rehearsed.
    """
    if not names:
        return
    for label, (recipe, finished) in recipes.items():
        if finished:
            _check(label, finished[0], names, "")
            continue
        report(f"{label}: one step of each stage, to check {', '.join(names)}")
        with temporary_folder("rehearsal") as folder:
            run = rehearse(recipe, folder)
            if run is None:
                report(f"{label}: the rehearsal failed, so the measures are not checked before its runs")
            else:
                _check(label, run, names, " (as a rehearsal of one step of each stage shows; no run was started)")


def rehearse(recipe: Recipe, folder: Path) -> Path | None:
    """Do one step of each stage in a separate process; returns the run's folder, None if it failed."""
    small = replace(recipe, evaluation=replace(recipe.evaluation, holdout=min(recipe.evaluation.holdout, HOLDOUT)))
    plan = folder / "recipe.json"
    write_file(plan, json.dumps(to_tree(small)))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "posttrain.runs.one_run", "--rehearse", str(plan), str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": str(recipe.threads or 1), "CI": "true"},
        check=False,
    )
    return next((path.parent for path in folder.glob("*/summary.json")), None) if done.returncode == 0 else None


def _check(label: str, run: Path, names: Sequence[str], how: str) -> None:
    """Raise `UserError` for a name that a run does not have."""
    with RunStore.open(run, reading=True) as store:
        for name in names:
            try:
                measure(store, name)
            except UserError as error:
                raise UserError(f"--measure {name}: {str(error).replace(str(run), repr(label))}{how}") from None
