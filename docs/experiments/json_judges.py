"""A judge that writes scores in JSON: with demonstrations or an adapter, and as the reward of PPO beside other rewards.

The recipe `lora_judge` at its default, its first stage shared by all arms of a seed. The judge's base, which has the
form and scores by chance, is asked without and with six demonstrations; then judges with adapters that learned from
pairs, from pairs with labels by chance, or a Bradley-Terry head that learned from the same pairs for as many steps.
Reported are 200 new pairs with the worked solution first (ties half), replies without a score, and right sums of 200
held out, before and after PPO by each.

    python docs/experiments/json_judges.py --seeds 5
"""

import argparse
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
from posttrain.audit.judges import Shown, Verdict
from posttrain.audit.judges.rewarded import RewardJudge
from posttrain.components.annotators.noise import Noise
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards import Reward
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.datasets.judge_prompts import Example
from posttrain.engines import Sampler
from posttrain.engines.native import Native
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.reward_models.lora_judge import lora_judge
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.scored_sums import PROMPT, scored_sums
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.statistics.intervals import mean

PAIRS, DEMONSTRATIONS, HEAD = 200, 6, AdamW(lr=3e-4)
Numbers = tuple[float, float, float, float]
"""Pairs in order, replies without a score, right sums before and after, in percent."""


def demonstrations() -> tuple[Example, ...]:
    """Worked solutions and bare results of short sums, alternating."""
    tasks = WorkedSolutions(size=DEMONSTRATIONS, seed=9, terms=(2, 2), digits=(1, 1), rejected="unworked").load()
    found = []
    for number, task in enumerate(tasks):
        (pair,) = task.preferences
        side = number % 2
        response, why, score = (pair.chosen, pair.rejected)[side], pair.fields["notes"][side], (9, 1)[side]
        found.append(Example(question=str(task.prompt), response=response, why=why, score=score))
    return tuple(found)


def ordered(reward: Reward, role: str, model: Model) -> tuple[float, float]:
    """New pairs with the worked solution first, and replies without a score, in percent."""
    server: Any = Native().serve(load_policy(role, model, {}, torch.device("cpu")), 0)

    def samplers(key: str) -> Mapping[str, Sampler]:
        return {role: server.bind("pairs", key)}

    judge = RewardJudge(name=role, reward=reward, samplers=samplers, local=frozenset({role}))
    pairs = [
        (task, task.preferences[0])
        for task in WorkedSolutions(size=PAIRS, seed=7, terms=(2, 3), rejected="unworked").load()
    ]
    found: list[Verdict] = judge.verdicts([Shown(task=t, first=p.chosen, second=p.rejected) for t, p in pairs])
    wins = [0.5 if verdict.win is None else verdict.win for verdict in found]
    return 100 * float(np.mean(wins)), 100 * float(np.mean([verdict.win is None for verdict in found]))


def after(recipe: Recipe, role: str, reward: Reward, base: Path, folder: Path, seed: int, model: Model) -> Numbers:
    """Run the stages after the first one, and ask the judge."""
    models = {name: model for name, model in recipe.models.items() if name != "instructed"}
    if "judge" in models:
        models["judge"] = replace(models["judge"], source=str(base))
    stages = {name: stage for name, stage in recipe.stages.items() if name != "form"}
    stages["rl"] = replace(rl_of(recipe), audit=MEASURED)  # some judges are bad on purpose
    done = run(replace(recipe, models=models, stages=stages, seed=seed, threads=1), out=folder, quiet=True)
    summary = json.loads((done.folder / "summary.json").read_text())
    kept = max((done.folder / "checkpoints").iterdir()) / "models" / role
    adapted = str(base) if model.head == "language" else None
    order, failed = ordered(reward, role, replace(model, source=str(kept), base=adapted))
    return order, failed, 100 * summary["accuracy_before"], 100 * summary["accuracy_after"]


def one(seed: int, folder: Path) -> dict[str, Numbers]:
    """The numbers of a seed by arm."""
    recipe = lora_judge()
    form = replace(
        scored_sums(), stages={"form": recipe.stages["form"]}, seed=seed, threads=1, evaluation=Evaluation(by="none")
    )
    form = replace(form, models={name: form.models[name] for name in ("policy", "instructed")})
    done = run(form, out=folder / "form", quiet=True)
    base = max((done.folder / "checkpoints").iterdir()) / "models" / "instructed"
    reward: Any = rl_of(recipe).reward
    strict = replace(reward, unreadable=None)
    taught = replace(strict, prompt=replace(PROMPT, examples=demonstrations()))
    nothing = float("nan")
    found: dict[str, Numbers] = {
        "base": (*ordered(strict, "judge", Model(source=str(base))), nothing, nothing),
        "six demonstrations": (*ordered(taught, "judge", Model(source=str(base))), nothing, nothing),
    }
    judge: Any = recipe.stages["judge"]
    plain = Model(source="")
    for name, annotators in {"adapter": (), "adapter, labels by chance": (Noise(rate=0.5, spread=0.0),)}.items():
        items = replace(judge.tasks, tasks=replace(judge.tasks.tasks, annotators=annotators))
        stages = {**recipe.stages, "judge": replace(judge, tasks=items)}
        found[name] = after(replace(recipe, stages=stages), "judge", strict, base, folder / name[-6:], seed, plain)
    setting = scored_sums()
    learning = RewardModelTraining(
        reducer=Sequences(),
        max_steps=judge.max_steps,
        batch=16,
        learner=replace(judge.learner, optimizer=HEAD),
        tasks=judge.tasks.tasks,
    )
    stage = replace(rl_of(setting), reward=RewardModel())
    other = replace(
        setting,
        stages={"reward": learning, "rl": stage},
        models={"policy": setting.models["policy"]},
    )
    head = Model(source="role:policy", head="reward", trained=True)
    other = ppo(replace(other, models={**other.models, "reward": head}))
    found["Bradley-Terry head"] = after(
        other, "reward", RewardModel(), base, folder / "head", seed, Model(source="", head="reward")
    )
    return found


def shown(values: list[float]) -> str:
    """Mean and interval."""
    if np.isnan(values).any():
        return ""
    found = mean(np.array(values))
    return f"{found.value:.1f} [{found.interval.low:.1f}, {found.interval.high:.1f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument(
        "--out", type=Path, help="A folder for the numbers of each seed; those in it are not run again."
    )
    given = parser.parse_args()
    results = []
    for seed in range(given.first, given.first + given.seeds):
        kept = given.out / f"{seed}.json" if given.out else None
        if kept is not None and kept.is_file():
            results.append(json.loads(kept.read_text()))
            continue
        with tempfile.TemporaryDirectory() as made:
            results.append(one(seed, Path(made)))
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(results[-1]))
        print(seed, results[-1], file=sys.stderr, flush=True)
    table = [[name, *(shown([result[name][i] for result in results]) for i in range(4))] for name in results[0]]
    columns = ["judge", "pairs in order, %", "no score, %", "right sums before PPO, %", "after, %"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
