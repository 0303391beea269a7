"""Plans that runs execute: planned and measured seconds of a step, against the plan that is the same for all calls.

    python docs/experiments/placed.py [--only 3] [--steps 5]

For each configuration (model, number format, recipe, lengths, processes) each call of a step is measured on each mesh
of processes, the best placement is searched for, and that one and the best symmetric one are run. A step's seconds are
the median of those after the first. A model of 0.8 million weights is the bundled one; larger ones are drawn at random,
and so write to the end of their bounds.
"""

import argparse
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from posttrain.cluster.placed import Placed
from posttrain.cluster.planning.profiles import best_plans, read_profile
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.runs.profiling import measured, profile

SIZES = {"0.8M": None, "3M": {"layers": 4, "width": 256, "heads": 4, "kv_heads": 2}}
CONFIGURATIONS = [
    (size, dtype, recipe, lengths, processes)
    for size in SIZES
    for dtype in ("float32", "bfloat16")
    for recipe, lengths, processes in (("ppo", "ragged", 2), ("ppo", "fixed", 2), ("grpo", "ragged", 2))
]
SIZE = ["threads=1", "prompts=8", "evaluation.holdout=4", "learner.micro_batch_tokens=1024"]


def median(rows: list[dict[str, Any]]) -> float:
    """Seconds of a step."""
    spent = sorted(row["seconds_total"] for row in rows[1:])
    return float(spent[len(spent) // 2])


def compared(size: str, dtype: str, name: str, lengths: str, processes: int, steps: int, folder: Path) -> list[str]:
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
    path.write_text(json.dumps(profile(recipe, processes, steps, lambda text: None)))
    problem = read_profile(path)
    found = best_plans(problem, seed=0, proposals=2000)
    row = [size, dtype, name, lengths]
    for plan in (found["best"][0], found["symmetric"]):
        calls = {call: tuple(own["devices"]) for call, own in plan["calls"].items()}
        spent = median(measured(recipe, Placed(processes=processes, calls=calls), steps + 1))
        planned = plan["seconds"] / problem.iterations
        row += [f"{planned:.3f}", f"{spent:.3f}", f"{100 * (planned / spent - 1):+.0f}"]
    return row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", help="Numbers of configurations.")
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    columns = ["weights", "dtype", "recipe", "lengths"]
    columns += [f"{plan}: {what}" for plan in ("found", "symmetric") for what in ("planned, s", "run, s", "off, %")]
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for number, configuration in enumerate(CONFIGURATIONS):
            if arguments.only is None or number in arguments.only:
                table.append(compared(*configuration, arguments.steps, Path(folder)))
                print(json.dumps([*table[-1], f"load {os.getloadavg()[0]:.1f}"]), flush=True)
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
