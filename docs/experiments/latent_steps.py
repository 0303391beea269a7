"""Accuracy and latent steps by prompted speed, and after reinforcement. Sheet of row 300 (arXiv:2505.16552).

    .venv/bin/python docs/experiments/latent_steps.py --seeds 5

For each seed the bundled model imitates sums of three digits in latent steps of 1, 2 or 4 tokens, and answers 200 other
sums at each speed. From there, at speed 2, GRPO with a reward of correct answers, with the same over the number of
latent steps, and with the mean over each sequence in the place of the sum over a constant. Prints one line of JSON for
each measurement, then means with 95 % intervals. Measurements that are there already are not repeated.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.per_step import PerStep
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.datasets.latents import steps_in
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.evaluation.greedy import evaluate
from posttrain.evaluation.settings import Evaluation
from posttrain.models import LatentSteps, Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.files import find_recipe
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.statistics.intervals import mean

SPEEDS = (1, 2, 4)
ARMS = ("answer", "per step", "sequence mean")
NAMES = ("accuracy", "steps")


def main() -> None:
    """Run what is missing and print what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="Of reinforcement.")
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=ARMS, help="Of reinforcement.")
    parser.add_argument("--out", type=Path, default=Path("latent_steps"))
    given = parser.parse_args()
    rows = []
    for seed in range(given.seeds):
        for row in one(seed, given.steps, given.arms, given.out / f"seed_{seed}"):
            rows.append(row)
            print(json.dumps(row), flush=True)
    for arm, speed in dict.fromkeys((row["arm"], row["speed"]) for row in rows):
        own = [row for row in rows if (row["arm"], row["speed"]) == (arm, speed)]
        spreads = {name: mean([float(str(row[name])) for row in own]) for name in NAMES}
        worded = {name: [round(x, 3) for x in (found.value, *found.interval)] for name, found in spreads.items()}
        print(json.dumps({"arm": arm, "speed": speed, **worded}))


def one(seed: int, steps: int, wanted: Sequence[str], out: Path) -> list[dict[str, object]]:
    """The measurements of a seed."""
    changes = [f"seed={seed}", f"tasks.seed={seed}", "threads=1", "checkpoints.every_steps=0", f"rl.steps={steps}"]
    changes += ["sft.max_steps=400"]
    latent = f"models.policy.latent_steps.speeds=[{','.join(map(str, SPEEDS))}]"
    recipe = find_recipe("colar", [*changes, latent, "evaluation.every=0", "evaluation.holdout=20"])
    taught = made(out, "imitation", replace(recipe, stages={"sft": recipe.stages["sft"]}))
    rows = [measured(taught, seed, speed, "imitation", out) for speed in SPEEDS]
    start_of = replace(recipe.models["policy"], source=str(taught), latent_steps=latent_of(2))
    base = replace(recipe, stages={"rl": recipe.stages["rl"]}, models={**recipe.models, "policy": start_of})
    stage = rl_of(base)
    arms = dict(zip(ARMS, (stage, replace(stage, reward=PerStep(of=stage.reward)),
                           replace(stage, reducer=Sequences())), strict=True))  # fmt: skip
    for arm in wanted:
        folder = made(out, arm.replace(" ", "_"), with_stage(base, arms[arm]))
        rows.append(measured(folder, seed, 2, arm, out))
    return rows


def latent_of(speed: int) -> LatentSteps:
    """The settings of latent steps at a speed."""
    return LatentSteps(speed=speed, speeds=SPEEDS)


def made(out: Path, name: str, recipe: Recipe) -> Path:
    """The model of a run, which is not repeated."""
    kept = out / f"{name}.txt"
    if not kept.exists():
        folder, _ = start(replace(recipe, name=name), out, LiveView(json=True))
        kept.write_text(str((folder / "model").resolve()))
    return Path(kept.read_text())


def measured(folder: Path, seed: int, speed: int, arm: str, out: Path) -> dict[str, object]:
    """Greedy accuracy and mean latent steps on 200 sums that were not trained on."""
    kept = out / f"{arm.replace(' ', '_')}-{speed}.json"
    if kept.exists():
        found: Mapping[str, object] = json.loads(kept.read_text())
        return dict(found)
    tasks = Arithmetic(size=1400, seed=seed, terms=(3, 3), digits=(1, 1)).load()[1200:]
    policy = load_policy("policy", Model(source=str(folder), latent_steps=latent_of(speed)), {}, torch.device("cpu"))
    server = Native().serve(policy, 0)
    done = evaluate(server, tasks, Match(), Evaluation(verifier=Match()), Sampling(max_tokens=48))
    steps = sum(steps_in(t) for t in done.trajectories) / len(done.trajectories)
    row = {"seed": seed, "arm": arm, "speed": speed, "accuracy": done.summary["accuracy"], "steps": steps}
    kept.write_text(json.dumps(row))
    return row


if __name__ == "__main__":
    sys.exit(main())
