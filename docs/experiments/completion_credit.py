"""IRCoCo: increments of an evaluator as the credit of tokens, beside the whole score, and with imitation.

    python docs/experiments/completion_credit.py --seeds 5

Sheet of row 100 (arXiv:2401.16637). The bundled model imitates endings of lines of code of which three in ten are
wrong; an evaluator learns from its greedy continuations. All arms of a seed start from that model and evaluator, and
learn from the same recorded completions, 16 in each of 60 steps: by increments, by the edit similarity of the whole
completion on all of its tokens, by increments beside imitation of true endings, and by that imitation alone.

Reported are the edit similarity of greedy completions of 200 held-out lines before, and after 20, 40 and 60 steps, and
for the evaluator the squared error on prefixes of other lines beside the variance of their scores.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain import run
from posttrain.components.advantages.fixed_baseline import FixedBaseline
from posttrain.components.balances.fixed import Fixed
from posttrain.components.rewards import RewardContext, scored
from posttrain.components.rewards.text_similarity import TextSimilarity
from posttrain.components.search.continuations import Continuations
from posttrain.components.tasks.code_lines import CodeLines
from posttrain.engines import Sampler
from posttrain.engines.native import Native
from posttrain.methods.rewards.ircoco import ircoco
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.statistics.intervals import mean
from posttrain.types import Task

EVERY, PREFIXES = 20, 100


def evaluator(folder: Path) -> list[float]:
    """Squared error on prefixes of other lines, and the variance of their scores."""
    cpu = torch.device("cpu")
    policy = load_policy("policy", Model(source=str(folder / "policy")), {}, cpu)
    value = load_policy("value", Model(source=str(folder / "value"), head="reward"), {}, cpu)
    servers: Any = {"policy": Native().serve(policy, 0), "value": Native().serve(value, 0)}
    tasks, reward = CodeLines(size=PREFIXES, seed=9).load(), TextSimilarity()

    async def one(task: Task) -> list[tuple[float, float]]:
        samplers: Mapping[str, Sampler] = {name: server.bind("prefixes", task.key) for name, server in servers.items()}
        found = await Continuations(cuts=2).search(task, samplers, lambda g: scored(g, reward, RewardContext()))
        return [(await samplers["value"].score(state.token_ids), state.value) for state in found.states]

    async def everything() -> list[list[tuple[float, float]]]:
        return list(await asyncio.gather(*map(one, tasks)))

    pairs = np.array([pair for own in asyncio.run(everything()) for pair in own])
    return [float(np.mean((pairs[:, 0] - pairs[:, 1]) ** 2)), float(pairs[:, 1].var())]


def arms(recipe: Recipe) -> dict[str, Any]:
    """The stages that are compared."""
    stage = rl_of(recipe)
    alone = replace(stage, experts=None, balance=None)
    return {
        "increments": alone,
        "whole score": replace(alone, reward=TextSimilarity(), advantage=FixedBaseline()),
        "increments and imitation": stage,
        "imitation alone": replace(stage, balance=Fixed(mu=1.0)),
    }


def one(seed: int, folder: Path, steps: int, short: bool) -> tuple[dict[str, list[float]], list[float]]:
    """Similarities by arm, and the numbers of the evaluator."""
    recipe = replace(ircoco(), seed=seed, threads=1)
    stages: dict[str, Any] = {name: recipe.stages[name] for name in ("sft", "values")}
    if short:
        stages = {"sft": replace(stages["sft"], max_steps=2), "values": replace(stages["values"], steps=2)}
    base = replace(recipe, stages=stages, models={n: m for n, m in recipe.models.items() if n != "behavior"})
    done = run(base, out=folder / "base", quiet=True)
    kept = max((done.folder / "checkpoints").iterdir()) / "models"
    found = {}
    for name, stage in arms(recipe).items():
        models = {**recipe.models, "policy": replace(recipe.models["policy"], source=str(kept / "policy"))}
        models["value"] = Model(source=str(kept / "value"), head="reward")
        own = replace(recipe, models=models, evaluation=replace(recipe.evaluation, every=min(EVERY, steps)))
        own = with_stage(replace(own, stages={"rl": stage}), replace(stage, steps=steps))
        result = run(own, out=folder / name.replace(" ", "_"), quiet=True)
        lines = [json.loads(line) for line in (result.folder / "evals.jsonl").read_text().splitlines()]
        by_step = {line["step"]: line["mean_score"] for line in lines}
        found[name] = [100 * by_step[step] for step in sorted(by_step)]
    return found, evaluator(kept)


def shown(values: list[float], digits: int = 1) -> str:
    """Mean and interval."""
    found = mean(np.array(values))
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3 * EVERY)
    parser.add_argument("--short", action="store_true", help="Two updates of each model before, for a trial.")
    parser.add_argument(
        "--out", type=Path, help="A folder for the numbers of each seed; those in it are not run again."
    )
    given = parser.parse_args()
    results = []
    for seed in range(given.seeds):
        kept = given.out / f"completion_{seed}.json" if given.out else None
        if kept is not None and kept.is_file():
            results.append(json.loads(kept.read_text()))
            continue
        with tempfile.TemporaryDirectory() as made:
            results.append(one(seed, Path(made), given.steps, given.short))
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(results[-1]))
        print(seed, results[-1], file=sys.stderr, flush=True)
    names = list(results[0][0])
    table = [[n, *(shown([r[0][n][i] for r in results]) for i in range(len(results[0][0][n])))] for n in names]
    print(json.dumps({"columns": ["credit", "before", *("after " + str(i) for i in (20, 40, 60))], "table": table}))
    error, variance = (shown([r[1][i] for r in results], 4) for i in range(2))
    print(json.dumps({"evaluator": {"squared error": error, "variance of the scores": variance}}))


if __name__ == "__main__":
    main()
