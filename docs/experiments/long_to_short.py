"""Long to short by merging: accuracy and length of answers by coefficient, for every method of merging.

    .venv/bin/python docs/experiments/long_to_short.py --seeds 5

Sheet of row 292 (arXiv:2503.20641). The short model is the bundled one, which mostly answers at once. The long one
comes from it by the quickstart's imitation and then reinforcement with a reward for correct answers that grows with
their length. Prints one line of JSON for each seed, method and coefficient, then means with 95 % intervals.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from posttrain.components.merges import Merge
from posttrain.components.merges.dare import DARE
from posttrain.components.merges.soup import Soup
from posttrain.components.merges.svd import SVD
from posttrain.components.merges.task_arithmetic import TaskArithmetic
from posttrain.components.merges.ties import TIES
from posttrain.models import Model
from posttrain.policies.merging import open_sources
from posttrain.recipes.overrides import override
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.merging import points, sweep
from posttrain.settings.quickstart import quickstart
from posttrain.statistics.intervals import mean

METHODS: Mapping[str, tuple[Merge, str]] = {
    "task_arithmetic": (TaskArithmetic(), "0:1:0.1"),
    "ties": (TIES(rate=0.8), "0.25:1:0.25"),
    "ties_rate_0.5": (TIES(rate=0.5), "0.25:1:0.25"),
    "dare_0.3": (DARE(p=0.3), "0.7:0.7:1"),
    "dare_0.9": (DARE(p=0.9), "0.7:0.7:1"),
    "svd_0.2": (SVD(share=0.2), "0.7:0.7:1"),
}


def longer(completion: str, task: Any) -> float:
    """0 for an incorrect answer, else 0.2 to 1 by the length, up to 80 characters."""
    correct = completion.rpartition("####")[2].strip() == task.answer
    return 0.2 + 0.8 * min(len(completion), 80) / 80 if correct else 0.0


def main() -> None:
    """Run every seed and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    found: dict[tuple[str, float], list[tuple[float, float]]] = {}
    last = None
    with TemporaryDirectory() as folder:
        for seed in range(given.seeds):
            long = trained(Path(folder), seed, given.steps)
            rows = swept({"pebble": Model(source="pebble"), "long": Model(source=str(long))}, METHODS)
            if last is not None:
                soup = {"mean_of_two_long": (Soup(), "0.5:0.5:1")}
                rows |= swept({"other": Model(source=str(last)), "long": Model(source=str(long))}, soup)
            last = long
            for (name, coefficient), (accuracy, tokens) in rows.items():
                found.setdefault((name, coefficient), []).append((accuracy, tokens))
                row = {"seed": seed, "method": name, "coefficient": coefficient, "accuracy": accuracy, "tokens": tokens}
                print(json.dumps(row), flush=True)
    for (name, coefficient), pairs in found.items():
        if len(pairs) > 1:
            accuracy, tokens = (mean([pair[i] for pair in pairs]) for i in (0, 1))
            ends = {"accuracy": accuracy, "tokens": tokens}
            worded = {key: [round(x, 3) for x in (m.value, *m.interval)] for key, m in ends.items()}
            print(json.dumps({"method": name, "coefficient": coefficient, **worded}))


def trained(folder: Path, seed: int, steps: int) -> Path:
    """A model that works out its answers at length."""
    changes = [f"seed={seed}", "threads=1", f"rl.steps={steps}", f"rl.reward={__file__}:longer", "evaluation.every=0"]
    recipe = replace(override(quickstart(), [*changes, "checkpoints.every_steps=0"]), name=f"long-{seed}")
    made, _ = start(recipe, folder, LiveView(json=True))
    return made / "model"


def swept(models: Mapping[str, Model], methods: Mapping[str, tuple[Merge, str]]) -> dict[tuple[str, float], Any]:
    """Accuracy and mean length by method and coefficient, on 200 held-out sums."""
    sources = open_sources(models, torch.device("cpu"))
    changes = ["evaluation.holdout=200", "evaluation.verifier=match", "threads=1"]
    rows = {}
    for name, (method, coefficients) in methods.items():
        for point in sweep(sources, method, points(coefficients), changes):
            rows[name, point.coefficient] = point.summary["accuracy"], point.summary["mean_tokens"]
    return rows


if __name__ == "__main__":
    sys.exit(main())
