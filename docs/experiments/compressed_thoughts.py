"""TRAAC: are thoughts shorter at equal accuracy where what attention passes over is cut out of correct rollouts?

    python docs/experiments/compressed_thoughts.py --seeds 5 --arms grpo lengths traac

Sheet of row 128 (arXiv:2510.01581), on the setting `padded_words`: sums of two to four numbers of one digit whose
imitated solutions have trivial steps such as ``12+0=12``. Each seed imitates once; from there four kinds of `STEPS`
steps:

    grpo         a reward for the answer alone
    lengths      the reward of TRAAC, with lengths by class, without compressed rollouts
    traac        the method: attention of the model that the stage begins with
    no classes   the same with the rate 0.6 and the scale 1 for all tasks

Reported are greedy accuracy and tokens on 200 held-out sums, accuracy on those of four numbers, and, of compressed
rollouts with several steps, the mean share of steps that was cut in easy tasks and in others, and the mean U.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from posttrain.components.rewards.class_length import ClassLength
from posttrain.components.rewards.sum import Sum
from posttrain.components.rollouts.compressed import Compressed, Eviction
from posttrain.components.rollouts.independent import Independent
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.rewards.traac import traac
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of, with_stage
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.store import RunStore
from posttrain.settings.padded_words import padded_words
from posttrain.statistics.intervals import mean

STEPS = 30
COMMON = ["threads=1", "checkpoints.every_steps=0"]
SHORTER = [f"rl.steps={STEPS}"]
ARMS = ("imitated", "grpo", "lengths", "traac", "no classes")
NAMES = ("accuracy", "of four numbers", "tokens", "cut of easy", "cut of others", "U")
NUMBERS = ("tokens", "U")


def arm(name: str, policy: str) -> Recipe:
    """The recipe of an arm, from an imitated model."""
    if name == "grpo":
        recipe = grpo(padded_words())
        models = {**recipe.models, "policy": Model(source=policy, trained=True)}
        return replace(recipe, models=models, stages={"rl": rl_of(recipe)})
    recipe = traac(padded_words())
    stage = rl_of(recipe)
    rollout, reward = stage.rollout, stage.reward
    assert isinstance(rollout, Compressed) and isinstance(reward, Sum)
    if name == "lengths":
        stage = replace(stage, rollout=Independent(n=rollout.n, sampling=rollout.sampling))
    elif name == "no classes":
        answer = reward.parts["answer"]
        assert isinstance(answer, ClassLength)
        parts = {**reward.parts, "answer": replace(answer, scales=(1.0, 1.0, 1.0))}
        rollout = replace(rollout, eviction=Eviction(rates=(0.6, 0.6, 0.6)))
        stage = replace(stage, rollout=rollout, reward=replace(reward, parts=parts))
    models = {**recipe.models, "policy": Model(source=policy, trained=True)}
    return with_stage(replace(recipe, models=models, stages={"rl": stage}), stage)


def run(recipe: Recipe, seed: int, folder: str) -> Path:
    """The folder of a run."""
    shorter = SHORTER if "rl" in recipe.stages else []
    made, _ = start(override(recipe, [f"seed={seed}", *COMMON, *shorter]), Path(folder), LiveView(json=True))
    return made


def measured(folder: Path, steps: int) -> list[float]:
    """Accuracy, that of four numbers, tokens, shares of steps that were cut, and U."""
    last = json.loads((folder / "evals.jsonl").read_text().splitlines()[-1])
    store = RunStore.open(folder, reading=True)
    rows = store.evaluation_rows(int(last["step"]), last["name"], ("prompt", "score_status"))
    four = [row["score_status"] == "ok" for row in rows if _terms(row["prompt"]) == 4]
    cuts: dict[bool, list[float]] = {True: [], False: []}
    uniformity = []
    for step in range(1, steps + 1):
        for row in store.rollouts(step):
            info = json.loads(row["info"] or "{}")
            if info.get("steps", 0) > 1:
                cuts[info["difficulty"] == "easy"].append(info["evicted"] / info["steps"])
                uniformity.append(info["uniformity"])
    shares = [float(np.mean(own)) if own else 0.0 for own in (cuts[True], cuts[False], uniformity)]
    return [last["accuracy"], float(np.mean(four)), last["mean_tokens"], *shares]


def _terms(prompt: str) -> int:
    return 1 + sum(prompt.count(sign) for sign in "+-*")


def said(values: list[float], percent: bool) -> str:
    """A mean with its 95 % interval."""
    own, scale = mean(values), 100.0 if percent else 1.0
    if len(set(values)) == 1:
        return f"{scale * values[0]:.1f}"
    return f"{scale * own.value:.1f} [{scale * own.interval.low:.1f}, {scale * own.interval.high:.1f}]"


def play(seed: int, arms: Sequence[str]) -> dict[str, list[float]]:
    """The numbers of each kind."""
    found: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        base = traac(padded_words())
        models = {"policy": base.models["policy"]}
        imitated = run(replace(base, stages={"sft": sft_of(base)}, models=models), seed, folder)
        found["imitated"] = measured(imitated, 0)
        print(json.dumps({"seed": seed, "imitated": found["imitated"]}), flush=True)
        for name in arms:
            recipe = arm(name, str(imitated / "model"))
            found[name] = measured(run(recipe, seed, folder), STEPS)
            print(json.dumps({"seed": seed, name: found[name]}), flush=True)
    return found


def main() -> None:
    """Print the numbers of each seed, then the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--arms", nargs="+", choices=ARMS[1:], default=list(ARMS[1:]))
    given = parser.parse_args()
    seeds = [play(seed, given.arms) for seed in range(given.first, given.first + given.seeds)]
    show(seeds)


def show(seeds: list[dict[str, list[float]]]) -> None:
    """Print the table, and the differences between kinds by seed."""
    table = []
    for name in seeds[0]:
        columns = zip(*(one[name] for one in seeds), strict=True)
        cells = [said(list(own), n not in NUMBERS) for n, own in zip(NAMES, columns, strict=True)]
        table.append([name, *cells])
        print("  ".join(table[-1]))
    for name, other in (("traac", "grpo"), ("traac", "lengths"), ("lengths", "grpo"), ("no classes", "traac")):
        if name not in seeds[0] or other not in seeds[0]:
            continue
        for place in (0, 1, 2):
            gaps = [one[name][place] - one[other][place] for one in seeds]
            print(name, "less", other, NAMES[place], said(gaps, place < 2))
    print(json.dumps({"columns": ["", *NAMES], "table": table}))


if __name__ == "__main__":
    main()
