"""Plans that runs execute: planned and measured seconds of a step, against the plan that is the same for all calls.
Sheet of row 281 (arXiv:2406.14088).

    python docs/experiments/placed.py --only 0 --seeds 5 --write
    python docs/experiments/placed.py [--steps 5]

``--write`` writes a table for docs/scale.md.

For each configuration (model, number format, recipe, lengths) each call of a step is measured on each mesh of two
processes, the best placement is searched for, and that one and the best symmetric one are run, one after the other for
each seed. A step's seconds are the median of those after the first. A model of 0.8 million weights is the bundled one;
larger ones are drawn at random, and so write to the end of their bounds.
"""

import argparse
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from posttrain.cluster.placed import Placed
from posttrain.cluster.planning.profiles import best_plans, read_profile
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.runs.profiling import measured, profile
from posttrain.statistics.intervals import mean

SIZES = {"0.8M": None, "3M": {"layers": 4, "width": 256, "heads": 4, "kv_heads": 2}}
CONFIGURATIONS = [
    (size, dtype, recipe, lengths)
    for size in SIZES
    for dtype in ("float32", "bfloat16")
    for recipe, lengths in (("ppo", "ragged"), ("ppo", "fixed"), ("grpo", "ragged"))
]
PROCESSES = 2
SIZE = ["threads=1", "prompts=8", "evaluation.holdout=4", "learner.micro_batch_tokens=1024"]


def median(rows: list[dict[str, Any]]) -> float:
    """Seconds of a step."""
    spent = sorted(row["seconds_total"] for row in rows[1:])
    return float(spent[len(spent) // 2])


def compared(size: str, dtype: str, name: str, lengths: str, steps: int, seeds: int, folder: Path) -> list[str]:
    """A row of the table."""
    changes = [*SIZE, f"models.policy.dtype={dtype}"]
    if (shape := SIZES[size]) is not None:
        changes.append(f"model={new_folder(folder / size, **shape)}")
    recipe = find_recipe(name, changes)
    stage: Any = recipe.stages["rl"]
    sampling = replace(stage.rollout.sampling, max_tokens=32, stop_token_ids=())
    if lengths == "fixed":
        sampling = replace(sampling, max_tokens=8)  # which few completions are shorter than
    stage = replace(stage, rollout=replace(stage.rollout, sampling=sampling))
    recipe = replace(recipe, stages={"rl": stage})
    path = folder / "profile.json"
    path.write_text(json.dumps(profile(recipe, PROCESSES, steps, lambda text: None)))
    problem = read_profile(path)
    found = best_plans(problem, seed=0, proposals=2000)
    plans = {"found": found["best"][0], "symmetric": found["symmetric"]}
    spent: dict[str, list[float]] = {plan: [] for plan in plans}
    for seed in range(seeds):
        for plan, own in plans.items():
            cluster = Placed(processes=PROCESSES, calls={n: tuple(c["devices"]) for n, c in own["calls"].items()})
            spent[plan].append(median(measured(replace(recipe, seed=seed), cluster, steps + 1)))
    row = [size, dtype, name, lengths]
    for plan, own in plans.items():
        planned, took = own["seconds"] / problem.iterations, sum(spent[plan]) / seeds
        row += [f"{planned:.3f}", f"{took:.3f}", f"{100 * (planned / took - 1):+.0f}"]
    ratio = mean(np.array(spent["symmetric"]) / np.array(spent["found"]))
    interval = f" [{ratio.interval.low:.2f}, {ratio.interval.high:.2f}]" if seeds > 1 else ""
    return [*row, f"{ratio.value:.2f}{interval}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", help="Numbers of configurations.")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="Write docs/measured/cluster/placed.json.")
    arguments = parser.parse_args()
    columns = ["weights", "dtype", "recipe", "lengths"]
    columns += [f"{plan}: {what}" for plan in ("found", "symmetric") for what in ("planned, s", "run, s", "off, %")]
    columns.append("symmetric, times found")
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for number, configuration in enumerate(CONFIGURATIONS):
            if arguments.only is None or number in arguments.only:
                table.append(compared(*configuration, arguments.steps, arguments.seeds, Path(folder)))
                print(json.dumps([*table[-1], f"load {os.getloadavg()[0]:.1f}"]), flush=True)
    only = "" if arguments.only is None else f" --only {' '.join(map(str, arguments.only))}"
    found = {
        "title": "Plans of calls that runs execute",
        "command": f"python docs/experiments/placed.py{only} --seeds {arguments.seeds} --write",
        "tables": [{"columns": columns, "rows": table}],
    }
    print(json.dumps(found, indent=1))
    if arguments.write:
        to = Path(__file__).parents[1] / "measured" / "cluster"
        to.mkdir(exist_ok=True)
        (to / "placed.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
