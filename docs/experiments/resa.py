"""Resa: does tuning through a sparse autoencoder of a reasoning model's states teach the base model anything?

    .venv/bin/python docs/experiments/resa.py --seeds 5

Sheet of row 117 (arXiv:2506.09967). For each seed the quickstart makes the source model from the bundled one. Then the
bundled model is tuned with the output of a layer replaced by its reconstruction by a sparse autoencoder of the source's
states or of its own, or moved by noise as far as the former moves it. The autoencoder is then taken out. Prints one
line of JSON for each seed and arm: accuracy on 200 held-out sums, what the autoencoder loses of the states that it
learned from, the divergence at the first and at the last step; then means with 95 % intervals, and the differences from
the base within seeds.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from posttrain.methods.sft_rl.resa import resa
from posttrain.models import Model
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.store import RunStore
from posttrain.settings.quickstart import quickstart
from posttrain.statistics.intervals import mean

COMMON = ["threads=1", "evaluation.every=0", "evaluation.holdout=200", "checkpoints.every_steps=0"]
ARMS = {
    "source, layer 1": ("source", "coder", 1),
    "base, layer 1": ("base", "coder", 1),
    "noise, layer 1": ("source", "noise", 1),
    "source, layer 0": ("source", "coder", 0),
    "source, layer 2": ("source", "coder", 2),
}
"""By name: whose states the autoencoder is of, what is inserted, and the layer."""


def main() -> None:
    """Run every seed and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    with TemporaryDirectory() as folder:
        for seed in range(given.first, given.first + given.seeds):
            recipe = replace(override(quickstart(), [f"seed={seed}", *COMMON]), name=f"source-{seed}")
            source, store = started(recipe, folder)
            before, after = (accuracy(store, name) for name in ("before", "rl"))
            rows = {"base": {"accuracy": before}, "source": {"accuracy": after}}
            for number, (arm, settings) in enumerate(ARMS.items()):
                _, store = started(tuned(source, seed, f"arm-{seed}-{number}", *settings), folder)
                rows[arm] = measured(store)
            for arm, row in rows.items():
                found.setdefault(arm, []).append(row)
                print(json.dumps({"seed": seed, "arm": arm, **row}), flush=True)
    for arm, results in found.items():
        if given.seeds > 1:
            numbers = {name: spread([row[name] for row in results]) for name in results[0]}
            gains = [row["accuracy"] - old["accuracy"] for row, old in zip(results, found["base"], strict=True)]
            print(json.dumps({"arm": arm, **numbers, "gain": spread(gains)}))


def tuned(source: Path, seed: int, name: str, of: str, inserted: Any, layer: int) -> Recipe:
    """The recipe without the stages that make the source."""
    recipe = resa()
    kept = {name: stage for name, stage in recipe.stages.items() if name in ("base", "sae", "tune", "result")}
    recipe = replace(recipe, stages=kept, models={**recipe.models, "source": Model(source=str(source / "model"))})
    changes = [f"stages.sae.of={of}", f"stages.sae.layer={layer}", f"stages.tune.layer={layer}"]
    changes += [f"stages.tune.inserted={inserted}", f"seed={seed}", "evaluation.verifier=match"]
    return replace(override(recipe, [*changes, *COMMON]), name=name)


def started(recipe: Recipe, folder: str) -> tuple[Path, RunStore]:
    """The run of a recipe."""
    made, _ = start(recipe, Path(folder), LiveView(json=True))
    return made, RunStore.open(made, reading=True)


def accuracy(store: RunStore, name: str) -> float:
    """Held-out accuracy of one evaluation."""
    [found] = [entry["accuracy"] for entry in store.evaluations() if entry["name"] == name]
    return float(found)


def measured(store: RunStore) -> dict[str, float]:
    """The numbers of an arm."""
    entries = list(store.metrics())
    coded = [entry["loss"] for entry in entries if entry["stage"] == "sae"]
    nats = [entry["nats"] for entry in entries if entry["stage"] == "tune"]
    return {
        "accuracy": accuracy(store, "result"),
        "unexplained": coded[-1],
        "nats_first": nats[0],
        "nats_last": nats[-1],
    }


def spread(values: list[float]) -> list[float]:
    """Mean and interval."""
    found = mean(values)
    return [round(x, 4) for x in (found.value, *found.interval)]


if __name__ == "__main__":
    sys.exit(main())
