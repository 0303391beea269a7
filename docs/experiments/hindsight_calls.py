"""Hindsight regenerations in small: imitation and values, on a log and on what was regenerated from it.

    python docs/experiments/hindsight_calls.py --seeds 5

The log has 500 calls of donors, whose kind shows after the first turn (`settings/calls`); the plea is the wrong one in
90 % of them. The controller sees finished calls; completions are those of the exact simulator. The arms: imitation of
the log and of log and regenerated calls, values of the log and of all, each with the same number of updates; then two
branches in place of one for each call, and a simulator that gives a reward to
20 % of the failures. Each model then calls 300 other donors, at temperature 1 with 8 candidates a turn.
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
from posttrain.components.rewards import RewardContext, scored
from posttrain.components.rollouts.by_values import ByValues
from posttrain.components.tasks.pleas import Pleas
from posttrain.engines.native import Native
from posttrain.methods.agents.hindsight import hindsight
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.tree import Recipe
from posttrain.stages.hierarchical import OUTPUTS
from posttrain.stages.hindsight import Hindsight
from posttrain.statistics.intervals import mean

ALWAYS = ["threads=1", "checkpoints.every_steps=0", "evaluation.holdout=4"]
ARMS = {
    "imitation of the log": (0, 0.0, 0.0),
    "imitation of all": (1, 0.0, 0.0),
    "values of the log": (0, 4.0, 0.0),
    "values of all": (1, 4.0, 0.0),
    "values of all, two branches": (2, 4.0, 0.0),
    "values of all, a simulator that is too kind": (1, 4.0, 0.2),
}


def warm() -> Recipe:
    """Imitation of the log by the policy, and of better turns by the controller."""
    recipe = hindsight()
    kept = {name: recipe.models[name] for name in ("policy", "controller")}
    evaluation = replace(recipe.evaluation, rollout=acting(recipe, 0.0))
    stages = {name: recipe.stages[name] for name in ("sft", "controller")}
    return replace(recipe, stages=stages, models=kept, evaluation=evaluation)


def acting(recipe: Recipe, beta: float) -> ByValues:
    """How the policy calls."""
    assert isinstance(recipe.evaluation.rollout, ByValues)
    return replace(recipe.evaluation.rollout, beta=beta)


def arm(folder: Path, branches: int, beta: float, too_kind: float) -> Recipe:
    """What follows."""
    recipe = hindsight()
    stage = recipe.stages["hindsight"]
    assert isinstance(stage, Hindsight)
    stage = replace(stage, branches=branches, too_kind=too_kind, value_steps=stage.value_steps if beta else 0)
    models = {
        **recipe.models,
        "policy": Model(source=str(folder / "model"), trained=True),
        "controller": Model(source=str(trained_role(folder, "controller"))),
    }
    if not beta:
        models = {name: models[name] for name in ("policy", "controller")}
    evaluation = replace(recipe.evaluation, rollout=acting(recipe, beta))
    return replace(recipe, stages={"hindsight": stage}, models=models, evaluation=evaluation)


def trained_role(folder: Path, role: str) -> Path:
    """The folder of the weights of another role."""
    return sorted(folder.rglob(f"{role}/config.json"))[-1].parent


async def success(folder: Path, beta: float) -> float:
    """The share of donors whose plea suits."""
    cpu, recipe = torch.device("cpu"), hindsight()
    models = {"policy": load_policy("policy", Model(source=str(folder / "model")), {}, cpu)}
    if beta:
        model = Model(source=str(trained_role(folder, "critic")), head="reward", outputs=OUTPUTS)
        models["critic"] = load_policy("critic", model, {}, cpu)
    servers = {role: Native().serve(model, 0) for role, model in models.items()}
    rollout, tasks = acting(recipe, beta), Pleas(size=300, seed=9).load()
    work = (rollout.collect(t, {role: server.bind("asked", t.key) for role, server in servers.items()}) for t in tasks)
    groups = await asyncio.gather(*work)
    assert recipe.evaluation.verifier is not None
    done = [await scored(group, recipe.evaluation.verifier, RewardContext()) for [group] in groups]
    return float(np.mean([group.solved for group in done]))


def counts(folder: Path) -> dict[str, float]:
    """What became of the proposals."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    row = next((line for line in lines if "regenerated/proposed" in line), {})
    return {name: row.get(f"regenerated/{name}", 0.0) for name in ("proposed", "kept", "leaked", "same")}


def cell(values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    found, digits = mean(np.array(values)), 0 if max(values) > 10 else 2
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def one_seed(seed: int, out: Path) -> dict[str, dict[str, float]]:
    """All arms of a seed."""

    def trained(recipe: Recipe) -> Path:
        done: Any = run(recipe, changes=[*ALWAYS, f"seed={seed}"], out=out, quiet=True)
        return Path(done.folder)

    source, rows = trained(warm()), dict[str, dict[str, float]]()
    for name, settings in ARMS.items():
        folder = trained(arm(source, *settings))
        rows[name] = {"success": asyncio.run(success(folder, settings[1])), **counts(folder)}
        print(seed, name, {key: round(value, 3) for key, value in rows[name].items()}, file=sys.stderr, flush=True)
    return rows


def table(found: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """The rows of all seeds as a table."""
    columns = list(found[0]["values of all"])
    rows = [[name, *(cell([seed[name][key] for seed in found]) for key in columns)] for name in found[0]]
    return {"columns": ["arm", *columns], "table": rows}


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    print(json.dumps(table([one_seed(seed, given.out) for seed in range(given.seeds)]), indent=1))


if __name__ == "__main__":
    main()
