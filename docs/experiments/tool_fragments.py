"""Pairs of fragments, by SimPO and by DPO, against pairs of whole answers and more imitation, after the same warm-up.

    python docs/experiments/tool_fragments.py --seeds 5

All arms of a seed begin with one warm-up (`settings/tool_rounds`). 300 other requests are answered greedily; the hard
part are the 30 % whose reference the warm-up finds least likely. Trained tokens are those after the warm-up. Then how
well perplexity finds what the warm-up fails at: the probability that a failed request has a higher one than a solved
one has.
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
from numpy.typing import NDArray

from posttrain import run
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.pairings.extremes import Extremes
from posttrain.components.preferences.dpo import DPO
from posttrain.components.rewards import RewardContext, scored
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.components.rollouts.independent import Independent
from posttrain.components.selections.hardest import Hardest
from posttrain.components.selections.paired import Paired
from posttrain.components.tasks.tool_requests import ToolRequests
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.methods.agents.itool import itool
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.tree import Recipe
from posttrain.stages import Stage
from posttrain.stages.preference import PreferenceTraining
from posttrain.stages.sft import SFT
from posttrain.statistics.intervals import mean
from posttrain.training.settings import Learning

ALWAYS = ["threads=1", "checkpoints.every_steps=0", "evaluation.holdout=20"]
TASKS = ToolRequests(size=300, level=2, seed=9, right=1.0)


def only(recipe: Recipe, stages: dict[str, Stage], source: str | None) -> Recipe:
    """The recipe with these stages, from a model."""
    own = recipe.models["policy"] if source is None else Model(source=source, trained=True)
    models = {"policy": own, "reference": Model(source="role:policy")}
    used = frozenset().union(*(stage.roles for stage in stages.values()))
    return replace(recipe, stages=stages, models={name: models[name] for name in models if name in used | {"policy"}})


def warm() -> Recipe:
    """The warm-up."""
    recipe = itool()
    return only(recipe, {name: recipe.stages[name] for name in ("easy", "hard")}, None)


def arms(source: str) -> dict[str, Recipe]:
    """What follows the warm-up."""
    recipe = itool()
    rounds = {name: stage for name, stage in recipe.stages.items() if isinstance(stage, PreferenceTraining)}
    first, sft = rounds["round_1"], recipe.stages["hard"]
    assert isinstance(sft, SFT) and isinstance(first.selection, Hardest) and isinstance(first.selection.then, Paired)
    more = replace(sft, tasks=None, max_steps=60, learner=Learning(optimizer=AdamW(lr=3e-4)), epochs=100.0)
    whole = Paired(pairing=Extremes(), reward=first.selection.then.reward, n=16, max_tokens=50, temperature=1.5)
    mined = replace(first, selection=replace(first.selection, then=whole))
    return {
        "imitation of all references": only(recipe, {"more": more}, source),
        "imitation of the hardest": only(
            recipe, {"more": replace(more, selection=replace(first.selection, then=None))}, source
        ),
        "pairs of whole answers": only(recipe, dict.fromkeys(rounds, mined), source),
        "pairs of fragments (iTool)": only(recipe, dict(rounds), source),
        "pairs of fragments by DPO": only(recipe, dict.fromkeys(rounds, replace(first, loss=DPO(beta=0.1))), source),
    }


async def asked(folder: Path) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether each request is answered rightly, and the mean negative log-probability of its reference."""
    tasks = list(TASKS.load())
    server = Native().serve(load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")), 0)
    rollout = Independent(n=1, sampling=Sampling(max_tokens=50, temperature=0.0))
    groups = await asyncio.gather(*(rollout.collect(t, {"policy": server.bind("asked", t.key)}) for t in tasks))
    verifier = ToolCalls(match="coarse", high=0.0)
    found = await asyncio.gather(*(scored(group, verifier, RewardContext()) for [group] in groups))
    measured = await Hardest(share=1.0).measure(tasks, {"policy": server.bind("read")})
    return np.array([own.trajectories[0].solved for own in found]), np.array(measured["nll"], np.float64)


def ranked(solved: NDArray[np.bool_], nll: NDArray[np.float64]) -> float:
    """The probability that a failed request is less likely than a solved one; ties count half."""
    more = nll[~solved][:, None] - nll[solved][None]
    return float(((more > 0) + 0.5 * (more == 0)).mean()) if more.size else 0.5


def cell(values: Sequence[float], digits: int = 2) -> str:
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
    aucs = []

    def trained(recipe: Recipe, seed: int) -> Any:
        return run(recipe, changes=[*ALWAYS, f"seed={seed}"], out=given.out, quiet=True)

    for seed in range(given.seeds):
        done = trained(warm(), seed)
        source = str(done.folder / "model")
        solved, nll = asyncio.run(asked(done.folder / "model"))
        hard = np.argsort(-nll, kind="stable")[: int(0.3 * len(nll))]
        aucs.append(ranked(solved, nll))
        own = {"warm-up": {"all": solved.mean(), "hard part": solved[hard].mean(), "trained tokens": 0.0}}
        for name, recipe in arms(source).items():
            after = trained(recipe, seed)
            right, _ = asyncio.run(asked(after.folder / "model"))
            summary = json.loads((after.folder / "summary.json").read_text(encoding="utf-8"))
            own[name] = {
                "all": right.mean(),
                "hard part": right[hard].mean(),
                "trained tokens": float(summary["trained_tokens"]),
            }
        for name, values in own.items():
            found.setdefault(name, []).append(values)
            print(
                seed, name, {key: round(float(value), 3) for key, value in values.items()}, file=sys.stderr, flush=True
            )
    table = [
        [
            name,
            cell([v["all"] for v in rows]),
            cell([v["hard part"] for v in rows]),
            f"{np.mean([v['trained tokens'] for v in rows]):,.0f}",
        ]
        for name, rows in found.items()
    ]
    columns = ["arm", "right", "right, hard part", "trained tokens"]
    print(json.dumps({"columns": columns, "table": table, "a failure is less likely": cell(aucs)}, indent=1))


if __name__ == "__main__":
    main()
