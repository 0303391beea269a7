"""Negatives of a ranking's bands, or of all ranks alike, after imitation of identifiers. Sheet of row 51 (DDRO).

    .venv/bin/python docs/experiments/retrieval.py --seeds 5

For each seed a new model imitates the identifiers of 64 documents (the setting `retrieval`), then learns from pairs
with negatives of three bands of BM25 (DDRO, arXiv:2504.05181), or of all ranks alike. On 100 new queries all
identifiers are ranked by a beam as wide as the corpus. Prints a line of JSON for each seed and arm, then the table.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.retrieval import RetrievalRanks
from posttrain.components.pairings.bands import Bands
from posttrain.components.tasks.retrieval import Retrieval
from posttrain.methods.preference.ddro import ddro
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import preference_of, with_stage
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.statistics.intervals import mean

COMMON = ["threads=1", "evaluation.by=none", "checkpoints.every_steps=0"]


def arms() -> dict[str, Recipe]:
    """The recipes after imitation, by name."""
    recipe = ddro()
    stage: Any = preference_of(recipe)
    recipe = replace(recipe, stages={"dpo": stage})
    alike = replace(stage.selection, pairing=Bands(ends=(64,), counts=(sum(stage.selection.pairing.counts),)))
    return {
        "DPO, all ranks alike": with_stage(recipe, replace(stage, selection=alike)),
        "DPO, three bands": recipe,
    }


def main() -> None:
    """Run every seed and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    with TemporaryDirectory() as folder:
        for seed in range(given.first, given.first + given.seeds):
            first = ddro()
            stages = {name: stage for name, stage in first.stages.items() if name != "dpo"}
            base = started(
                replace(first, stages=stages, models={"policy": first.models["policy"]}), seed, "sft", folder
            )
            rows = {"imitation": measured(base)}
            for arm, recipe in arms().items():
                models = {**recipe.models, "policy": Model(source=str(base), trained=True)}
                rows[arm] = measured(started(replace(recipe, models=models), seed, arm.replace(" ", "-"), folder))
            for arm, row in rows.items():
                found.setdefault(arm, []).append(row)
                print(json.dumps({"seed": seed, "arm": arm, **row}), flush=True)
    columns = list(found["imitation"][0])
    table = [[arm, *(shown([row[name] for row in rows]) for name in columns)] for arm, rows in found.items()]
    print(json.dumps({"columns": ["", *columns], "table": table}, indent=1))


def started(recipe: Recipe, seed: int, name: str, folder: str) -> Path:
    """The model that a run leaves."""
    recipe = replace(override(recipe, [f"seed={seed}", *COMMON]), name=f"{name}-{seed}")
    made, _ = start(recipe, Path(folder), LiveView(json=True))
    return made / "model"


def measured(model: Path) -> dict[str, float]:
    """Ranks on new queries."""

    def load() -> Policy:
        return load_policy("policy", Model(source=str(model)), {}, torch.device("cpu"))

    tasks = Retrieval(size=100, seed=1)
    diagnostic = RetrievalRanks(tasks=tasks, beams=64, recall=(1, 5, 10, 20))
    row: dict[str, float] = diagnostic.examine(Subject(name="m", load=load, serve=None)).values["found"]["m"]  # type: ignore[arg-type]
    return row


def shown(values: list[float]) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


if __name__ == "__main__":
    main()
