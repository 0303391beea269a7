"""Extract Method and SWE-RL: what their rewards raise, beside plain ones, on the bundled model.

    python docs/experiments/software_rewards.py refactorings --seeds 5
    python docs/experiments/software_rewards.py patches --seeds 5

Sheets of rows 93 (arXiv:2412.18035) and 17 (arXiv:2502.18449). All arms of a seed share the imitation of their setting
and differ in the reward alone. Every rollout of the first and of the last five steps is scored again, with the programs
run.

``refactorings``: a point for each of three checks, 1 for all of them or nothing, and a fourth point for equal results.
Reported are the shares of rollouts with all three checks, of copies, and of those with equal results.

``patches``: the similarity to the true patch, and 1 for the true patch, both with -1 for what has no form. Reported are
groups without spread of the first ten steps, the similarity and the share with correct results, and the similarity and
that share in the first five steps whose mean similarity is .85 or more.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from posttrain import run
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.patch_similarity import PatchSimilarity
from posttrain.components.rewards.refactored import Refactored
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.rewards.extract_method import extract_method
from posttrain.methods.rewards.swe_rl import swe_rl
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.sandbox import find_tier
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Score, Segment, Task, Trajectory

ENDS = 5
"""Steps at both ends that are reported."""
HIGH = 0.85
Rows = list[tuple[Task, str]]


def arms(what: str) -> tuple[Recipe, Mapping[str, Reward], Reward]:
    """The recipe, the rewards that are compared, and the one that scores again."""
    tier = find_tier().tier
    if what == "refactorings":
        named: dict[str, Reward] = {
            "a point for each check": Refactored(),
            "all checks or nothing": Refactored(partial=False),
            "results as a fourth check": Refactored(execution=True, weakest=tier),
        }
        return extract_method(), named, Refactored(execution=True, weakest=tier)
    named = {"similarity": PatchSimilarity(), "the true patch or nothing": PatchSimilarity(measure="exact")}
    return swe_rl(), named, PatchSimilarity(execution=True, weakest=tier)


def rollouts(folder: Path, tasks: Mapping[str, Task]) -> list[Rows]:
    """Task and completion of every rollout, by step."""
    found = []
    for path in sorted((folder / "rollouts").glob("*.parquet")):
        rows = duckdb.sql(f"select task_key, completion, stage from '{path}'").fetchall()
        if rows and rows[0][2] == "rl":
            found.append([(tasks[key], text) for key, text, _ in rows])
    return found


def scored(reward: Reward, rows: Rows) -> list[Score]:
    """The scores of completions."""
    ids = np.zeros(1, np.int64)
    made = tuple(
        Trajectory(
            task=task,
            segments=(Segment(actor="policy", token_ids=ids, trained=True, text=text),),
            stop_reason="stop",
            sample=i,
        )
        for i, (task, text) in enumerate(rows)
    )
    return list(asyncio.run(reward.score(Group(key="all", trajectories=made), RewardContext())))


def of_refactorings(again: Reward, rows: Rows) -> list[float]:
    """Shares with three checks, of copies, and with equal results, in percent."""
    scores = scored(again, rows)
    three = [
        all(s.parts[name].value == 1 for name in ("syntax", "names", "extraction")) if s.parts else False
        for s in scores
    ]
    copies = [text.strip() == task.fields["source"].strip() for task, text in rows]
    same = [bool(s.parts) and s.parts["results"].value == 1 for s in scores]
    both = [a and b for a, b in zip(three, same, strict=True)]
    return [100 * float(np.mean(own)) for own in (three, copies, both)]


def of_patches(again: Reward, rows: Rows) -> list[float]:
    """Mean similarity, -1 for what has no form, and the share with correct results in percent."""
    scores = scored(again, rows)
    return [float(np.mean([s.value for s in scores])), 100 * float(np.mean([s.status == "ok" for s in scores]))]


def one(what: str, seed: int, folder: Path, steps: int, updates: int) -> dict[str, list[float]]:
    """The numbers of a seed by arm."""
    recipe, named, again = arms(what)
    stage = rl_of(recipe)
    steps = steps or stage.steps
    tasks = {task.key: task for task in recipe.tasks.load()}
    quiet = Evaluation(by="none")
    sft: Any = recipe.stages["sft"]
    base = replace(
        recipe,
        stages={"sft": replace(sft, max_steps=updates or sft.max_steps)},
        models={"policy": recipe.models["policy"]},
        evaluation=quiet,
        seed=seed,
        threads=1,
    )
    start = run(base, out=folder / "base", quiet=True).folder / "model"
    found = {}
    for name, reward in named.items():
        policy = replace(recipe.models["policy"], source=str(start))
        own = replace(recipe, models={**recipe.models, "policy": policy}, stages={"rl": stage}, evaluation=quiet)
        own = with_stage(replace(own, seed=seed, threads=1), replace(stage, reward=reward, steps=steps))
        done = run(own, out=folder / name.replace(" ", "_"), quiet=True)
        by_step = rollouts(done.folder, tasks)
        first, last = (list(chain(*part)) for part in (by_step[:ENDS], by_step[-ENDS:]))
        if what == "refactorings":
            found[name] = [*of_refactorings(again, first), *of_refactorings(again, last)]
            continue
        lines = [json.loads(line) for line in (done.folder / "metrics.jsonl").read_text().splitlines()]
        flat = [100 * line["zero_variance"] for line in lines if line["stage"] == "rl"][:10]
        near = [float(np.mean([max(s.value, -1.0) for s in scored(PatchSimilarity(), rows)])) for rows in by_step]
        high = next((i for i in range(len(near) - ENDS + 1) if np.mean(near[i : i + ENDS]) >= HIGH), None)
        reached = of_patches(again, list(chain(*by_step[high : high + ENDS])))[1] if high is not None else float("nan")
        found[name] = [float(np.mean(flat)), *of_patches(again, first), *of_patches(again, last), reached]
    return found


COLUMNS = {
    "refactorings": [
        *("three checks at first, %", "copies, %", "three checks and equal results, %"),
        *("three checks at the end, %", "copies, %", "three checks and equal results, %"),
    ],
    "patches": [
        *("groups without spread, %", "similarity at first", "correct, %", "similarity at the end", "correct, %"),
        "correct where the similarity reaches .85, %",
    ],
}


def shown(values: list[float], digits: int) -> str:
    """Mean and interval of the seeds that have the number."""
    known = [value for value in values if not np.isnan(value)]
    if len(known) < 2:
        return f"{len(known)} of {len(values)} seeds"
    found = mean(np.array(known))
    text = f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"
    return text if len(known) == len(values) else f"{text} ({len(known)} seeds)"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=sorted(COLUMNS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="Steps of reinforcement; 0 takes the recipe's.")
    parser.add_argument("--updates", type=int, default=0, help="Updates of imitation; 0 takes the recipe's.")
    parser.add_argument(
        "--out", type=Path, help="A folder for the numbers of each seed; those in it are not run again."
    )
    given = parser.parse_args()
    results = []
    for seed in range(given.seeds):
        kept = given.out / f"{given.what}_{seed}.json" if given.out else None
        if kept is not None and kept.is_file():
            results.append(json.loads(kept.read_text()))
            continue
        with tempfile.TemporaryDirectory() as made:
            results.append(one(given.what, seed, Path(made), given.steps, given.updates))
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(results[-1]))
        print(seed, results[-1], file=sys.stderr, flush=True)
    columns = COLUMNS[given.what]
    digits = [2 if "similarity" in name and "%" not in name else 1 for name in columns]
    table = [
        [name, *(shown([result[name][i] for result in results], digits[i]) for i in range(len(columns)))]
        for name in results[0]
    ]
    print(json.dumps({"columns": ["reward", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
