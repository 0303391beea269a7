"""AutoTriton: programs that call the library in place of a kernel, with and without the gate, and without imitation.

    python docs/experiments/gated_kernels.py --seeds 5

Sheet of row 96 (arXiv:2507.05687), experiments 1 and 2. All arms of a seed but the last begin with one imitation of
about 200 programs with kernels in the toy language and 20 that call the function ``reference``, and are trained for 80
steps of 16 programs with 8 answers. ``tests only``: right values, from kernels or not. ``gated``: the recipe.
``without imitation``: the recipe from random weights, 10 steps. Columns: share of cheating programs and mean reward in
the first and the last ten steps, held-out accuracy by kernels before and after, and the share of groups with different
rewards.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from posttrain import run
from posttrain.components.rewards.kernel import Kernel
from posttrain.methods.rewards.autotriton import autotriton
from posttrain.models import Model
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.statistics.intervals import mean

ALWAYS = ["threads=1", "checkpoints.every_steps=0"]
ANYONE = Kernel(dialect="toy", strict=False, compiles=False)
ARMS = {
    "tests only": ANYONE,
    "gated (AutoTriton)": rl_of(autotriton()).reward,
}
ENDS = 10


def imitation() -> Recipe:
    """The first stage."""
    recipe = autotriton()
    return replace(recipe, stages={"sft": recipe.stages["sft"]}, models={"policy": recipe.models["policy"]})


def reinforced(source: Path | None, reward: Any) -> Recipe:
    """What follows, with another reward."""
    recipe = autotriton()
    models = dict(recipe.models)
    if source is not None:
        models["policy"] = Model(source=str(source), trained=True)
    return replace(recipe, models=models, stages={"rl": replace(rl_of(recipe), reward=reward)})


def measured(made: Any) -> dict[str, float]:
    """Of a run."""
    files = sorted((made.folder / "rollouts").glob("step_*.parquet"))
    rows = [pq.read_table(file, columns=["completion", "reward", "group_index"]).to_pylist() for file in files]
    found: dict[str, float] = {}
    for name, own in (("first", rows[:ENDS]), ("last", rows[-ENDS:])):
        flat = [row for step in own for row in step]
        found[f"cheats, {name}"] = float(np.mean(["reference(" in row["completion"] for row in flat]))
        found[f"reward, {name}"] = float(np.mean([row["reward"] for row in flat]))
    spread = []
    for step in rows:
        groups: dict[str, set[float]] = {}
        for row in step:
            groups.setdefault(row["group_index"], set()).add(row["reward"])
        spread += [len(values) > 1 for values in groups.values()]
    summary = json.loads((made.folder / "summary.json").read_text(encoding="utf-8"))
    return found | {
        "held out, before": summary["accuracy_before"],
        "held out": summary["accuracy_after"],
        "groups with spread": float(np.mean(spread)),
    }


def cell(values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def main() -> None:
    """Print a line for each seed and arm, and the table."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}

    def trained(recipe: Recipe, seed: int, *more: str) -> Any:
        return run(recipe, changes=[*ALWAYS, f"seed={seed}", *more], out=given.out, quiet=True)

    for seed in range(given.first, given.first + given.seeds):
        source = trained(imitation(), seed).folder / "model"
        arms = {name: (reinforced(source, reward), given.steps) for name, reward in ARMS.items()}
        arms["without imitation"] = reinforced(None, ARMS["gated (AutoTriton)"]), ENDS
        for name, (recipe, steps) in arms.items():
            row = measured(trained(recipe, seed, f"rl.steps={steps}"))
            found.setdefault(name, []).append(row)
            print(json.dumps({"seed": seed, "arm": name, **row}), file=sys.stderr, flush=True)
    columns = list(found["tests only"][0])
    table = [[name, *(cell([row[key] for row in rows]) for key in columns)] for name, rows in found.items()]
    print(json.dumps({"columns": ["arm", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
