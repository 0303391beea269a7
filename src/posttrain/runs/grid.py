"""Trains a recipe on every split of a budget between demonstrations and pairs; each run starts from the initial model.

    OUT/400-0.25/seed_0/sft_dpo-1/    a run like any other
    OUT/grid.json                     the result

Runs are those of a comparison (`posttrain.runs.comparison`): finished ones are not repeated.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posttrain.errors import UserError
from posttrain.recipes.budgets import Split, recipe_of, text_of
from posttrain.recipes.changes import preference_of, sft_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.comparison import Contender, Job, Report, run_all
from posttrain.runs.files import write_file
from posttrain.runs.journal import plain
from posttrain.runs.problems import Problems
from posttrain.runs.store import RunStore
from posttrain.stages.pairs import pairs_of
from posttrain.statistics.intervals import mean


def grid(recipe: Recipe, found: Sequence[Split], *, seeds: int, out: Path, jobs: int, report: Report) -> dict[str, Any]:
    """Run every split that is not finished; returns what ``grid.json`` has, and the folder.

    `recipe` has the data that the splits need (`check_amounts`).
    """
    threads = recipe.threads or max(1, (os.cpu_count() or 1) // jobs)
    contenders = [_contender(recipe, one, out, threads) for one in found]
    failures = run_all(_distinct(contenders), range(seeds), jobs, report)
    cells = [_cell(contender, one, seeds) for contender, one in zip(contenders, found, strict=True)]
    result = {"recipe": recipe.name, "seeds": seeds, "cells": cells, "best": best(cells), "failures": failures}
    out.mkdir(parents=True, exist_ok=True)
    write_file(out / "grid.json", json.dumps(plain(result), indent=1) + "\n")
    return {**result, "folder": str(out)}


def with_enough(recipe: Recipe, found: Sequence[Split], report: Report) -> Recipe:
    """The recipe with as many tasks as the largest split needs, where code makes them; reports a change."""
    try:
        check_amounts(recipe, found)
    except TooFew as error:
        if error.change is None:
            raise
        report(f"{error.change}: as many tasks as the largest split needs")
        return override(recipe, [error.change])
    return recipe


class TooFew(UserError):
    """The data have too few examples for a split; `change` adds the tasks where code makes them, else it is None."""

    def __init__(self, message: str, change: str | None) -> None:
        super().__init__(message)
        self.change = change


def check_amounts(recipe: Recipe, found: Sequence[Split]) -> None:
    """Raise `TooFew` where the recipe's data, without held-out tasks, have too few examples for a split."""
    problems = Problems(recipe)
    imitation, preference = sft_of(recipe), preference_of(recipe)
    shown, pairs = len(imitation.pairs(problems.of(imitation))), len(pairs_of(problems.of(preference)))
    missing = {one: max(one.demonstrations - shown, _examples(one) - pairs) for one in found}
    for one, lacks in missing.items():
        if lacks > 0:
            change = _larger(recipe.tasks, max(missing.values()))
            more = f"more data: {change}" if change else "more data"
            raise TooFew(
                f"budget {text_of(one.budget)}, share {text_of(one.share)}: {one.demonstrations} demonstrations and "
                f"{one.pairs} pairs of other examples are needed; the data have {shown} demonstrations and {pairs} "
                f"pairs besides the held-out tasks. Give a smaller budget, or {more}",
                change,
            )


def _examples(one: Split) -> int:
    """Examples that the pairs of a split need: demonstrations come first in the data, pairs are those after them."""
    return one.demonstrations + one.pairs if one.pairs else 0


def _larger(tasks: Any, more: int) -> str | None:
    """The change that adds `more` tasks where code makes them: ``tasks.size=2200``; else None."""
    path = "tasks"
    while not isinstance(getattr(tasks, "size", None), int):
        tasks, path = getattr(tasks, "tasks", None), f"{path}.tasks"
        if tasks is None:
            return None
    return f"{path}.size={tasks.size + more}"


def _contender(recipe: Recipe, one: Split, out: Path, threads: int) -> Contender:
    """The runs of a split; a split without demonstrations shares them with share 0."""
    share = text_of(one.share) if one.demonstrations else "0"
    name = f"{text_of(one.budget)}-{share}"
    changed = replace(recipe_of(recipe, one), threads=threads)
    label = f"budget {text_of(one.budget)}, share {share}"
    return Contender(label=label, recipe=changed, folder=out / name)


def _distinct(contenders: Sequence[Contender]) -> list[Contender]:
    """One of each folder."""
    return list({contender.folder: contender for contender in contenders}.values())


def _cell(contender: Contender, one: Split, seeds: int) -> dict[str, Any]:
    """Counts, accuracy and share of well-formed answers of a split, over the finished runs."""
    folders = [path for seed in range(seeds) if (path := Job(contender=contender, seed=seed).done)]
    measured = [_measured(path) for path in folders]
    return {
        "budget": float(one.budget),
        "share": float(one.share),
        "demonstrations": one.demonstrations,
        "pairs": one.pairs,
        "spent": float(one.spent),
        "seeds": len(folders),
        "accuracy": _spread([row["accuracy"] for row in measured]),
        "form": _spread([row["form"] for row in measured]),
    }


def _measured(folder: Path) -> dict[str, float]:
    """Accuracy of the last evaluation, and the share of its greedy answers in which an answer was found."""
    with RunStore.open(folder, reading=True) as store:
        last = store.evaluations()[-1]
        rows = store.evaluation_rows(last["step"], last["name"], ["score_answer"], "sample = 0")
    formed = sum(row["score_answer"] is not None for row in rows)
    return {"accuracy": float(last["accuracy"]), "form": formed / len(rows)}


def _spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Mean and interval over seeds; None without a finished run."""
    if not values:
        return None
    if len(values) == 1:
        return {"mean": values[0], "interval": None, "values": list(values)}
    found = mean(values)
    return {"mean": found.value, "interval": list(found.interval), "values": list(values)}


def best(cells: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """For each budget, the share of the highest mean accuracy; of equal ones the smallest share."""
    found: dict[str, float] = {}
    for budget in dict.fromkeys(cell["budget"] for cell in cells):
        own = [cell for cell in cells if cell["budget"] == budget and cell["accuracy"]]
        if own:
            found[f"{budget:g}"] = max(own, key=lambda cell: cell["accuracy"]["mean"])["share"]
    return found
