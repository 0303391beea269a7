"""Conjectures and proofs: self-play against expert iteration with as many tries, and without its parts.

    python docs/experiments/conjectures.py --seeds 5

All arms of a seed begin with one warm-up (`settings/theorems`). Expert iteration tries its targets more often, so that
it samples at least as many tokens. Hard targets are sums of six or seven numbers, of which the warm-up has few: how
many were proved in any round, and how many of 60 others are proved at once (greedy). Then the conjectures: their mean
pass rate in the second and in the last round, the share within the band, and the entropy, in bits, of how many numbers
they have in the last one.
"""

import argparse
import asyncio
import json
import multiprocessing
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from posttrain import run
from posttrain.components.rewards import RewardContext, scored
from posttrain.components.rewards.derivation import Derivation
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.theorems import Theorems
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.methods.multi_agent.stp import stp
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.statistics.intervals import mean

ALWAYS = ["threads=1", "checkpoints.every_steps=0", "evaluation.holdout=4"]
ARMS = {
    "expert iteration": ["rounds.conjecture=false", "rounds.retrain=false", "rounds.rollout.n=24"],
    "STP": ["rounds.retrain=false"],
    "without the filter of trivial ones": ["rounds.retrain=false", "rounds.trivial=0"],
    "without matching": ["rounds.retrain=false", "rounds.cap=0"],
}


def warm() -> Recipe:
    """The warm-up."""
    recipe = stp()
    return replace(recipe, stages={"sft": recipe.stages["sft"]}, models={"policy": recipe.models["policy"]})


def rounds(source: Path) -> Recipe:
    """What follows."""
    recipe = stp()
    models = {**recipe.models, "policy": Model(source=str(source), trained=True)}
    return replace(recipe, stages={"rounds": recipe.stages["rounds"]}, models=models)


async def proved(folder: Path) -> float:
    """The share of other hard statements that are proved greedily."""
    hard = stp().tasks
    assert isinstance(hard, Theorems)
    tasks = list(Theorems(size=60, terms=hard.hard, seed=77).load())
    server = Native().serve(load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")), 0)
    rollout = Independent(n=1, sampling=Sampling(max_tokens=120, temperature=0.0))
    groups = await asyncio.gather(*(rollout.collect(t, {"policy": server.bind("asked", t.key)}) for t in tasks))
    found = await asyncio.gather(*(scored(group, Derivation(), RewardContext()) for [group] in groups))
    return float(np.mean([group.solved for group in found]))


def topics(folder: Path) -> float:
    """Entropy, in bits, of how many numbers the conjectures of the last round have."""
    with RunStore.open(folder, reading=True) as record:
        rows = record.rollouts(record.rollout_steps()[-1], ["prompt", "domain"])
    asked = {row["prompt"] for row in rows if row["domain"] == "conjecture"}
    counts = np.unique([len(re.findall(r"\d", prompt)) for prompt in asked], return_counts=True)[1]
    share = counts / max(counts.sum(), 1)
    return float(-(share * np.log2(share)).sum()) if len(counts) else float("nan")


def measured(folder: Path) -> dict[str, float]:
    """Of a run."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [line for line in lines if "proved" in line]
    made = [row for row in rows if row["conjectures"]]
    nothing = float("nan")
    return {
        "hard targets": rows[-1]["proved/hard"],
        "other hard ones": asyncio.run(proved(folder / "model")),
        "pass rate at first": made[0]["conjecture_rate"] if made else nothing,
        "pass rate at last": made[-1]["conjecture_rate"] if made else nothing,
        "in the band": float(np.mean([row["in_band"] for row in made])) if made else nothing,
        "entropy, bits": topics(folder),
        "sampled tokens": float(sum(row["sampled_tokens"] for row in rows)),
    }


def arms(seed: int, out: Path) -> dict[str, dict[str, float]]:
    """What every arm comes to."""
    torch.set_num_threads(1)

    def trained(recipe: Recipe, *more: str) -> Path:
        return run(recipe, changes=[*ALWAYS, f"seed={seed}", *more], out=out / str(seed), quiet=True).folder

    source = trained(warm()) / "model"
    return {name: measured(trained(rounds(source), *changes)) for name, changes in ARMS.items()}


def cell(values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    if not np.isfinite(values).all():
        return "-"
    found, digits = mean(np.array(values)), 0 if max(values) > 10 else 3
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2, help="seeds at the same time")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ARMS}
    with ProcessPoolExecutor(given.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for seed, rows in enumerate(pool.map(arms, range(given.seeds), [given.out] * given.seeds)):
            for name, row in rows.items():
                found[name].append(row)
                print(seed, name, {k: round(v, 3) for k, v in row.items()}, file=sys.stderr, flush=True)
    columns = list(found["STP"][0])
    table = [[name, *(cell([row[key] for row in rows]) for key in columns)] for name, rows in found.items()]
    pairs = zip(found["STP"], found["expert iteration"], strict=True)
    gap = cell([a["hard targets"] - b["hard targets"] for a, b in pairs])
    print(json.dumps({"columns": ["arm", *columns], "table": table, "hard targets, STP less the first": gap}, indent=1))


if __name__ == "__main__":
    main()
