"""Kimi K2 in small: a penalty for answers over their budget, and the PTX loss, after the same warm-up.

    python docs/experiments/token_budgets.py --seeds 5

The warm-up imitates wordy solutions (`settings/wordy_sums`). The budget is the 60th percentile of the lengths that it
samples. All arms have it; their penalty is 0 or 1, and their PTX loss is on exercises of another kind (copying,
reversing, sorting, ...), with a factor of .1 or 0. Then accuracy and tokens of greedy answers to 100 other sums, with
128 tokens at most, the share of sampled answers within the budget, and the accuracy on 200 other exercises.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain import run
from posttrain.components.experts.stream import Stream
from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.rewards import RewardContext, scored
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.over_budget import OverBudget
from posttrain.components.rollouts.budgeted import Budgeted
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.primer import Primer
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.methods.policy_gradient.kimi_k2 import kimi_k2
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.tree import Recipe
from posttrain.settings.wordy_sums import wordy_sums
from posttrain.stages.rl import RL
from posttrain.statistics.intervals import mean
from posttrain.types import Task, Trajectory

ALWAYS = ["threads=1", "checkpoints.every_steps=0", "evaluation.holdout=8"]
SUMS = Arithmetic(size=100, terms=(2, 3), seed=9)
OTHER = Primer(size=200, seed=77, problems=0.0)
ARMS = {"no penalty": (0.0, 0.1), "penalty 1 (Kimi K2)": (1.0, 0.1), "penalty 1, no PTX": (1.0, 0.0)}
STEPS = 40


def warm() -> Recipe:
    """The imitation of wordy solutions."""
    recipe = wordy_sums()
    return replace(recipe, stages={"sft": recipe.stages["sft"]})


def arm(source: Path, budget: int, penalty: float, ptx: float) -> Recipe:
    """Reinforcement from the warm-up."""
    recipe = kimi_k2(wordy_sums())
    stage = recipe.stages["rl"]
    assert isinstance(stage, RL) and isinstance(stage.rollout, Budgeted) and isinstance(stage.reward, OverBudget)
    assert isinstance(stage.objective, ByOrigin)
    stage = replace(
        stage,
        steps=STEPS,
        rollout=replace(stage.rollout, sampling=replace(stage.rollout.sampling, max_tokens=budget)),
        reward=OverBudget(of=Match(), penalty=penalty),
        objective=replace(stage.objective, weight=ptx),
        experts=Stream(tasks=Primer(size=2000, seed=3, problems=0.0), batch=8),
    )
    models = {"policy": Model(source=str(source), trained=True)}
    return replace(recipe, models=models, stages={"rl": stage})


async def answers(source: Path, tasks: Sequence[Task], *, temperature: float, extract: str) -> list[Trajectory]:
    """A scored answer to each task."""
    server = Native().serve(load_policy("policy", Model(source=str(source)), {}, torch.device("cpu")), 0)
    rollout = Independent(n=1, sampling=Sampling(max_tokens=128, temperature=temperature))
    groups = await asyncio.gather(*(rollout.collect(t, {"policy": server.bind("asked", t.key)}) for t in tasks))
    reward = Match(extract=(extract,))  # type: ignore[arg-type]
    found = await asyncio.gather(*(scored(group, reward, RewardContext()) for [group] in groups))
    return [group.trajectories[0] for group in found]


def measured(source: Path, budget: int) -> dict[str, float]:
    """Accuracies and lengths of a model."""
    sums = asyncio.run(answers(source, list(SUMS.load()), temperature=0.0, extract="hashes"))
    drawn = asyncio.run(answers(source, list(SUMS.load()), temperature=1.0, extract="hashes"))
    others = [replace(t, answer=t.demonstrations[0].strip()) for t in OTHER.load()]
    other = asyncio.run(answers(source, others, temperature=0.0, extract="whole"))
    return {
        "accuracy": float(np.mean([t.solved for t in sums])),
        "tokens": float(np.mean([t.num_trained for t in sums])),
        "within budget": float(np.mean([t.num_trained <= budget for t in drawn])),
        "other exercises": float(np.mean([t.solved for t in other])),
    }


def cell(values: Sequence[float], digits: int = 3) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}

    def trained(recipe: Recipe, seed: int) -> Any:
        return run(recipe, changes=[*ALWAYS, f"seed={seed}"], out=given.out, quiet=True)

    for seed in range(given.seeds):
        source = trained(warm(), seed).folder / "model"
        drawn = asyncio.run(answers(source, list(SUMS.load()), temperature=1.0, extract="hashes"))
        budget = int(np.quantile([t.num_trained for t in drawn], 0.6))
        rows = {"warm-up": measured(source, budget) | {"budget": float(budget)}}
        for name, (penalty, ptx) in ARMS.items():
            done = trained(arm(source, budget, penalty, ptx), seed)
            rows[name] = measured(done.folder / "model", budget) | {"budget": float(budget)}
        for name, row in rows.items():
            found.setdefault(name, []).append(row)
            print(seed, name, {key: round(value, 3) for key, value in row.items()}, file=sys.stderr, flush=True)
    columns = list(found["warm-up"][0])
    table = [[name, *(cell([row[key] for row in rows]) for key in columns)] for name, rows in found.items()]
    base = found["no penalty"]
    ours = found["penalty 1 (Kimi K2)"]
    gaps = {key: cell([b[key] - a[key] for a, b in zip(base, ours, strict=True)]) for key in columns}
    kept = [b["other exercises"] - a["other exercises"] for a, b in zip(found["penalty 1, no PTX"], ours, strict=True)]
    print(
        json.dumps(
            {"columns": ["arm", *columns], "table": table, "penalty 1 less 0": gaps, "PTX less none": cell(kept)},
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
