"""Curr-ReFT: do stages of yes or no, options and open answers lead further than open answers alone?

    python docs/experiments/answer_forms.py --seeds 5

Sheet of row 1 (arXiv:2503.07065), on the setting `shape_questions`. Each seed imitates once; from there 120 steps:

    open         open answers alone
    forward      40 steps each of yes or no, options, open answers: the method
    reverse      the same stages in the other order
    released     open answers alone, by the rule that also rewards empty answers and parts of words

and after `forward` SFT on the best of eight answers to plain sums, of those that have 0.85 (`best`). Reported are the
overlap (Jaccard) of greedy answers with the names in 200 held-out pictures, the share that is exact, the share of
groups without spread in the first five steps of open answers, the reward of the last five steps, and accuracy on plain
sums, which no stage of RL has.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from posttrain.components.rewards.label import Label
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.sum import Sum
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.tagged import Tagged
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.curriculum.curr_reft import curr_reft
from posttrain.models import Model
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.stages.rl import RL
from posttrain.stages.sft import SFT
from posttrain.statistics.intervals import mean

COMMON = ["threads=1", "checkpoints.every_steps=0"]
ARMS = ("imitated", "open", "forward", "best", "reverse", "released")
NAMES = ("overlap", "exact", "no spread at first", "reward at last", "plain sums")


def arm(name: str) -> Recipe:
    """The stages of an arm, without those before them."""
    recipe = curr_reft()
    own = {key: recipe.stages[key] for key in ("judge", "choice", "open")}
    stage = own["open"]
    assert isinstance(stage, RL) and isinstance(stage.reward, Sum)
    if name in ("open", "released"):
        whole = replace(stage, steps=3 * stage.steps)
        if name == "released":
            parts = {**stage.reward.parts, "answer": Label(match="containment", empty=True)}
            whole = replace(whole, reward=replace(stage.reward, parts=parts))
        own = {"open": whole}
    elif name == "reverse":
        own = {key: own[key] for key in ("open", "choice", "judge")}
    elif name == "best":
        own = {"best": recipe.stages["best"]}
    models = recipe.models if any(isinstance(s, RL) for s in own.values()) else {"policy": recipe.models["policy"]}
    return replace(recipe, stages=own, models=models)


def run(recipe: Recipe, seed: int, folder: str, policy: Path | None = None, *more: str) -> Path:
    """The folder of a run, from a model."""
    if policy is not None:
        models = {**recipe.models, "policy": Model(source=str(policy / "model"), trained=True)}
        recipe = replace(recipe, models=models)
    made, _ = start(override(recipe, [f"seed={seed}", *COMMON, *more]), Path(folder), LiveView(json=True))
    return made


def sums(seed: int, folder: str, policy: Path) -> float:
    """Accuracy on plain sums of two digits."""
    recipe = arm("best")
    tasks = Tagged(tasks=Arithmetic(size=40, terms=(2, 2), digits=(1, 1), operators="+"))
    [(name, stage)] = recipe.stages.items()
    assert isinstance(stage, SFT)
    stages = {name: replace(stage, selection=None, max_steps=1)}
    evaluation = Evaluation(tasks=tasks, verifier=Match(), holdout=40)
    made = run(replace(recipe, stages=stages, evaluation=evaluation), seed, folder, policy)
    return float(json.loads((made / "evals.jsonl").read_text().splitlines()[0])["accuracy"])


def measured(made: Path, seed: int, folder: str) -> list[float]:
    """The numbers of an arm."""
    last = json.loads((made / "evals.jsonl").read_text().splitlines()[-1])
    lines = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    own = [line for line in lines if line.get("stage") == "open"]
    dead = float(np.mean([line["zero_variance"] for line in own[:5]])) if own else float("nan")
    reward = float(np.mean([line["reward"] for line in own[-5:]])) if own else float("nan")
    return [last["mean_score"], last["accuracy"], dead, reward, sums(seed, folder, made)]


def said(values: list[float]) -> str:
    """A mean with its 95 % interval."""
    if np.isnan(values).any():
        return ""
    own = mean(values)
    return f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]"


def main() -> None:
    """Print the numbers of each seed, then the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--arms", nargs="+", choices=ARMS[1:], default=list(ARMS[1:]))
    given = parser.parse_args()
    found: dict[str, list[list[float]]] = {name: [] for name in ("imitated", *given.arms)}
    for seed in range(given.first, given.first + given.seeds):
        with TemporaryDirectory() as folder:
            base = curr_reft()
            first = replace(base, stages={"sft": base.stages["sft"]}, models={"policy": base.models["policy"]})
            runs = {"imitated": run(first, seed, folder)}
            for name in given.arms:
                runs[name] = run(arm(name), seed, folder, runs["forward" if name == "best" else "imitated"])
            for name, made in runs.items():
                found[name].append(measured(made, seed, folder))
            print(json.dumps({"seed": seed, **{name: rows[-1] for name, rows in found.items()}}), flush=True)
    table = [[name, *(said(list(own)) for own in zip(*rows, strict=True))] for name, rows in found.items()]
    for row in table:
        print("  ".join(row))
    for name in [name for name in ("imitated", "open", "reverse", "released") if name in found and "forward" in found]:
        for place in (0, 1):
            gaps = [a[place] - b[place] for a, b in zip(found["forward"], found[name], strict=True)]
            print("forward less", name, NAMES[place], said(gaps))
    print(json.dumps({"columns": ["", *NAMES], "table": table}))


if __name__ == "__main__":
    main()
