"""Planned and measured: seconds of a step and memory of each process, by numbers of samplers and learners.

    python docs/experiments/planned.py --sizes 0.8M 3.2M --write
    python docs/experiments/planned.py --sizes 135M --write

For each size, number format and lengths a profile is measured (`posttrain.runs.forecasting`), the placements are
planned from it, and then run. Seconds are medians of the steps after the first. Memory is the peak of resident memory:
of the run's own process, of a sampler, of a learner besides. Models are drawn at random and write to the end of their
bound, which is equal for all (fixed), or end at one of a sixth of all tokens, chosen at random (ragged). The reward is
the share of even bytes. ``--only`` takes some configurations by number, ``--steps`` fewer steps.
"""

import argparse
import json
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from posttrain.cluster.ray import Ray
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.recipes.tree import Recipe
from posttrain.runs.forecasting import STEPS, Seen, forecast, profile, seen
from posttrain.types import Task

SIZES: dict[str, dict[str, Any]] = {
    "0.8M": {"layers": 4, "width": 128, "heads": 4, "kv_heads": 2},
    "3.2M": {"layers": 4, "width": 256, "heads": 4, "kv_heads": 2},
    "135M": {"layers": 10, "width": 1024, "heads": 16, "kv_heads": 16},
}
ALONE, ONE, TWO, THREE, FOUR = (0, 1), (1, 1), (1, 2), (2, 1), (2, 2)
"""Samplers and learners."""
PLACED: list[tuple[str, str, str, tuple[int, int], int]] = [
    ("0.8M", "float32", "fixed", ALONE, 0),
    ("0.8M", "float32", "fixed", ONE, 0),
    ("0.8M", "float32", "fixed", ONE, 1),
    ("0.8M", "float32", "fixed", FOUR, 0),
    ("0.8M", "bfloat16", "ragged", ALONE, 0),
    ("0.8M", "bfloat16", "ragged", THREE, 0),
    ("3.2M", "float32", "ragged", ONE, 0),
    ("3.2M", "float32", "ragged", THREE, 0),
    ("3.2M", "float32", "ragged", FOUR, 1),
    ("3.2M", "bfloat16", "fixed", ALONE, 0),
    ("3.2M", "bfloat16", "fixed", ONE, 1),
    ("135M", "float32", "fixed", ALONE, 0),
    ("135M", "float32", "fixed", ONE, 0),
    ("135M", "float32", "fixed", ONE, 1),
    ("135M", "bfloat16", "ragged", ONE, 0),
    ("135M", "bfloat16", "ragged", FOUR, 0),
]
COLUMNS = ["weights", "dtype", "lengths", "samplers", "learners", "lag", "step, s", "run, s", "off, %"]
COLUMNS += [f"{kind}, {what}" for kind in ("own", "sampler", "learner") for what in ("MB", "run, MB", "off, %")]


def even(completion: str, task: Task) -> float:
    """The share of even bytes, which no two completions have alike."""
    given = completion.encode()
    return sum(byte % 2 == 0 for byte in given) / max(len(given), 1)


def recipe_of(size: str, dtype: str, lengths: str, folder: Path) -> Recipe:
    """GRPO with a model of random weights: 8 prompts of 8 completions, or fewer for the largest."""
    large = size == "135M"
    model = folder / size
    if not model.exists():
        new_folder(model, **SIZES[size])
    changes = ["threads=1", f"model={model}", f"models.policy.dtype={dtype}", f"reward={__file__}:even"]
    changes += [f"prompts={2 if large else 8}", f"rollout.n={4 if large else 8}", "evaluation.holdout=2"]
    changes += [f"learner.micro_batch_tokens={64 if large else 512}"]
    recipe = find_recipe("grpo", changes)
    stage: Any = recipe.stages["rl"]
    ends = tuple(range(0, 256, 6)) if lengths == "ragged" else ()
    sampling = replace(stage.rollout.sampling, max_tokens=16 if large else 32, stop_token_ids=ends)
    return replace(recipe, stages={"rl": replace(stage, rollout=replace(stage.rollout, sampling=sampling))})


def placed(recipe: Recipe, samplers: int, learners: int, lag: int) -> Recipe:
    """The recipe on its samplers and learners."""
    if lag:
        from posttrain.components.timetables.lagged import Lagged

        recipe = replace(recipe, schedule=Lagged(steps=lag))
    if not samplers:
        return recipe
    return replace(recipe, cluster=Ray(samplers=samplers, learners=learners, cpus=0.25, store_mb=1024))


def off(planned: float, run: float) -> str:
    """By how much a plan is too high, in per cent."""
    return f"{100 * (planned / run - 1):+.0f}"


def memory(planned: int, run: int) -> list[str]:
    """Cells of the memory of a kind of process."""
    return [f"{planned / 1e6:.0f}", f"{run / 1e6:.0f}", off(planned, run)]


def rows(sizes: list[str], only: list[int] | None, steps: int) -> list[list[str]]:
    """The table."""
    table, profiles = [], dict[tuple[str, str, str], Any]()
    with tempfile.TemporaryDirectory() as temporary:
        for number, (size, dtype, lengths, (samplers, learners), lag) in enumerate(PLACED):
            if size not in sizes or (only is not None and number not in only):
                continue
            recipe = recipe_of(size, dtype, lengths, Path(temporary))
            key = size, dtype, lengths
            if key not in profiles:
                given = replace(recipe, cluster=Ray(store_mb=1024))
                profiles[key] = profile(given, steps)
                print(json.dumps([*key, repr(profiles[key])]), flush=True)
            plan = forecast(profiles[key], samplers, learners, lag)
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                run: Seen = pool.submit(seen, placed(recipe, samplers, learners, lag), steps).result()
            row = [*key, str(samplers), str(learners), str(lag)]
            row += [f"{plan.seconds:.3f}", f"{run.total:.3f}", off(plan.seconds, run.total)]
            for kind in ("own", "sampler", "learner"):
                row += memory(plan.memory[kind], run.peaks[kind]) if kind in plan.memory else [""] * 3
            print(json.dumps([*row, f"load {os.getloadavg()[0]:.1f}", repr(run)]), flush=True)
            table.append(row)
    return table


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--only", type=int, nargs="*", help="Numbers of configurations.")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--write", action="store_true", help="Write docs/measured/cluster/planned_SIZES.json.")
    given = parser.parse_args()
    table = rows(given.sizes, given.only, given.steps)
    caption = f"Plans and runs on this machine ({', '.join(given.sizes)}); lag 0 alternates."
    found = {
        "title": f"Plans against runs: {', '.join(given.sizes)}",
        "command": f"python docs/experiments/planned.py --sizes {' '.join(given.sizes)} --write",
        "tables": [{"caption": caption, "columns": COLUMNS, "rows": table}],
    }
    print(json.dumps(found, indent=1))
    if given.write:
        to = Path(__file__).parents[1] / "measured" / "cluster"
        to.mkdir(exist_ok=True)
        name = f"planned_{'_'.join(given.sizes)}.json"
        (to / name).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
