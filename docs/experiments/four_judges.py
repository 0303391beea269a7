"""One policy under four judges: the score of each, and how many of its answers are right, over the steps.

    python docs/experiments/four_judges.py --seeds 5

GRPO on sums from the bundled model, 60 steps; of 200 held-out sums the share that is right (gold) is measured every 15
steps, and the judge's mean score of the step (proxy). The judges:

    slips        a reward model of 2,000 pairs: a worked solution is preferred to one with a wrong step
    swapped      the same with 30 % of the labels swapped
    steps        a reward model that prefers worked solutions to bare results: it has seen no wrong one
    likelihood   the mean log-probability under the model that the policy was at the start
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from posttrain.components.annotators.noise import Noise
from posttrain.components.rewards.likelihood import Likelihood
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models, with_stage
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.settings.reward_model_sums import reward_model_sums
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.statistics.intervals import mean

JUDGES = ("slips", "swapped", "steps", "likelihood")
STEPS, EVERY = 60, 15


def arm(name: str) -> Recipe:
    """The recipe with a judge."""
    recipe = grpo(reward_model_sums())
    recipe = with_stage(recipe, replace(rl_of(recipe), steps=STEPS, audit=MEASURED))
    if name == "likelihood":
        stage = replace(rl_of(recipe), reward=Likelihood())
        models = {role: model for role, model in recipe.models.items() if role != "reward"}
        recipe = replace(recipe, stages={"rl": stage}, models=models)
        recipe = with_models(recipe, {"judge": Model(source="role:policy")})
    elif name != "steps":
        annotators = (Noise(rate=0.3, spread=0.0),) if name == "swapped" else ()
        recipe = replace(recipe, tasks=WorkedSolutions(size=2000, rejected="slip", annotators=annotators))
    return replace(recipe, evaluation=replace(recipe.evaluation, every=EVERY))


def measured(name: str, seed: int) -> tuple[list[float], list[float]]:
    """Gold in percent at the start and every 15 steps, and the proxy in the steps around."""
    with TemporaryDirectory() as folder:
        changes = [f"seed={seed}", "threads=1", "checkpoints.every_steps=0"]
        made, _ = start(override(arm(name), changes), Path(folder), LiveView(json=True))
        evals = [json.loads(line) for line in (made / "evals.jsonl").read_text().splitlines()]
        lines = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    reward = [line["reward"] for line in lines if line.get("stage") == "rl"]
    parts = [reward[:5], *(reward[end - 5 : end] for end in range(EVERY, STEPS + 1, EVERY))]
    right = [100.0 * own["accuracy"] for own in evals]
    gold = [right[0], *right[-(STEPS // EVERY) :]]  # between them are those of the reward model's stage
    return gold, [float(np.mean(part)) for part in parts]


def said(values: list[float], digits: int) -> str:
    """A mean with its 95 % interval."""
    own = mean(values)
    return f"{own.value:.{digits}f} [{own.interval.low:.{digits}f}, {own.interval.high:.{digits}f}]"


def main() -> None:
    """Print the numbers of each seed, then the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--judges", nargs="+", choices=JUDGES, default=list(JUDGES))
    given = parser.parse_args()
    table = []
    for name in given.judges:
        seeds = []
        for seed in range(given.first, given.first + given.seeds):
            seeds.append(measured(name, seed))
            print(json.dumps({"judge": name, "seed": seed, "gold": seeds[-1][0], "proxy": seeds[-1][1]}), flush=True)
        for what, place, digits in (("gold, %", 0, 1), ("proxy", 1, 2)):
            columns = zip(*(own[place] for own in seeds), strict=True)
            table.append([name, what, *(said(list(column), digits) for column in columns)])
    columns = ["judge", "", *(f"step {step}" for step in range(0, STEPS + 1, EVERY))]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
