"""Plans of typed tools: imitation, and RLTF with and without the constraint.

    python docs/experiments/tool_plans.py --seeds 5

All arms of a seed begin with one warm-up on ten demonstrations (`settings/tool_plans`) and make the same number of
steps. The 60 chains that no arm learns from are then planned with 8 draws each, under the constraint and without it:
the score of what a plan gives (0 where it does not fit), the share of plans whose links all fit and whose tools there
are, and the share of those that also begin and end as the task wants.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain import run
from posttrain.components.rewards import RewardContext, scored
from posttrain.components.rewards.chains import Chains
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts.constrained import Constrained
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.planned import Planned
from posttrain.datasets.tool_chains import TOOLS, fault, tools_of
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.methods.agents.openagi import openagi
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.statistics.intervals import mean

TRAINED = 154
ALWAYS = ["threads=1", "checkpoints.every_steps=0", "evaluation.holdout=4", f"tasks.size={TRAINED}"]
ALWAYS += ["alarms.entropy_collapse.action=note"]  # so that all arms make as many steps
HELD_OUT = Planned(size=214).load()[TRAINED:]
SAMPLING = Sampling(max_tokens=96)


def warm() -> Recipe:
    """Ten demonstrations."""
    recipe = openagi()
    return replace(recipe, stages={"sft": recipe.stages["sft"]})


def arms(source: str) -> dict[str, Recipe]:
    """What follows the warm-up."""
    recipe = openagi()
    stage = rl_of(recipe)
    model = {"policy": Model(source=source, trained=True)}
    own = {
        "RLTF": stage,
        "RLTF without the constraint": replace(stage, rollout=Independent(n=8, sampling=SAMPLING)),
    }
    return {name: replace(recipe, models=model, stages={"rl": rl}) for name, rl in own.items()}


async def plans(folder: Path, rollout: Rollout) -> list[tuple[float, bool, bool]]:
    """Of each plan the score, whether its links fit, and whether its ends fit too."""
    server = Native().serve(load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")), 0)
    groups = await asyncio.gather(*(rollout.collect(t, {"policy": server.bind("asked", t.key)}) for t in HELD_OUT))
    found = await asyncio.gather(*(scored(group, Chains(invalid=0.0), RewardContext()) for [group] in groups))
    rows = []
    for t in (t for group in found for t in group):
        names = tools_of(t.completion)
        assert t.score is not None
        rows.append((t.score.value, linked(names), not fault(names, t.task.fields["goal"])))
    return rows


def linked(names: Sequence[str]) -> bool:
    """Whether all are tools, none is used twice, and each takes what the one before it gives."""
    if len(set(names)) < len(names) or any(name not in TOOLS for name in names):
        return False
    return all(TOOLS[a].gives == TOOLS[b].takes for a, b in pairwise(names))


def measured(folder: Path) -> dict[str, float]:
    """Means over all plans."""
    free = np.array(asyncio.run(plans(folder, Independent(n=8, sampling=SAMPLING))), np.float64)
    held = np.array(asyncio.run(plans(folder, Constrained(n=8, sampling=SAMPLING))), np.float64)
    return {
        "score": held[:, 0].mean(),
        "valid links": held[:, 1].mean(),
        "fits the task": held[:, 2].mean(),
        "score, free": free[:, 0].mean(),
        "valid links, free": free[:, 1].mean(),
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
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}

    def trained(recipe: Recipe, seed: int, *more: str) -> Any:
        return run(recipe, changes=[*ALWAYS, f"seed={seed}", *more], out=given.out, quiet=True)

    for seed in range(given.seeds):
        source = trained(warm(), seed).folder / "model"
        rows = {"ten demonstrations": measured(source)}
        for name, recipe in arms(str(source)).items():
            rows[name] = measured(trained(recipe, seed, f"rl.steps={given.steps}").folder / "model")
        for name, row in rows.items():
            found.setdefault(name, []).append(row)
            print(seed, name, {key: round(float(value), 3) for key, value in row.items()}, file=sys.stderr, flush=True)
    columns = list(found["RLTF"][0])
    table = [[name, *(cell([row[key] for row in rows]) for key in columns)] for name, rows in found.items()]
    print(json.dumps({"columns": ["arm", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
