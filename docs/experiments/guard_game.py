"""A guard and a generator: co-trained, with a frozen generator, and without the label filter.

    python docs/experiments/guard_game.py --seeds 5

All arms of a seed begin with one warm-up of the generator (`settings/disguises`), and sample as much. Then the guard
reads 240 other texts in each form of their words: its accuracy on whether they are harmful, its F1, and the share of
candidates that the filter keeps in the last round.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain import run
from posttrain.components.tasks.disguised import Disguised
from posttrain.methods.multi_agent.duoguard import duoguard
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.tree import Recipe
from posttrain.stages.guard_rounds import GuardRounds
from posttrain.statistics.intervals import mean

ALWAYS = ["threads=1", "checkpoints.every_steps=0", "evaluation.holdout=60"]
ARMS = {
    "frozen generator": ["rounds.learns=false"],
    "co-trained (DuoGuard)": [],
    "co-trained, without the label filter": ["rounds.filtered=false"],
}


def warm() -> Recipe:
    """The warm-up of the generator."""
    recipe = duoguard()
    return replace(recipe, stages={"sft": recipe.stages["sft"]}, models={"policy": recipe.models["policy"]})


def rounds(source: Path) -> Recipe:
    """What follows."""
    recipe = duoguard()
    models = {**recipe.models, "policy": Model(source=str(source), trained=True)}
    return replace(recipe, stages={"rounds": recipe.stages["rounds"]}, models=models)


def guard_of(folder: Path) -> Path:
    """The folder of the guard's weights."""
    return sorted(folder.rglob("*/guard/config.json"))[-1].parent


def measured(folder: Path) -> dict[str, float]:
    """Of a run."""
    stage = duoguard().stages["rounds"]
    assert isinstance(stage, GuardRounds)
    model = Model(source=str(guard_of(folder)), head="reward", outputs=12)
    guard = load_policy("guard", model, {}, torch.device("cpu"))
    found: dict[str, float] = {}
    for form in ("plain", "backwards", "voiceless"):
        texts = [stage.seed_of(t) for t in Disguised(size=240, seed=55, which=form).load()]
        right = [right for _, right in stage.verdicts(guard, texts)]
        unsafe = np.array([bool(own) for _, own in texts])
        called = np.where(right, unsafe, ~unsafe)
        found[form] = float(np.mean(right))
        if form != "plain":
            hit = float((called & unsafe).sum())
            found[f"F1, {form}"] = 2 * hit / max(float(called.sum() + unsafe.sum()), 1.0)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [line for line in lines if "fooled" in line]
    return found | {"kept": rows[-1]["kept"], "fooled": rows[-1]["fooled"], "pairs": rows[-1]["pairs"]}


def cell(values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    found, digits = mean(np.array(values)), 1 if max(values) > 10 else 3
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}

    def trained(recipe: Recipe, seed: int, *more: str) -> Any:
        return run(recipe, changes=[*ALWAYS, f"seed={seed}", *more], out=given.out, quiet=True)

    for seed in range(given.seeds):
        source = trained(warm(), seed).folder / "model"
        for name, changes in ARMS.items():
            row = measured(trained(rounds(source), seed, *changes).folder)
            found.setdefault(name, []).append(row)
            print(seed, name, {key: round(value, 3) for key, value in row.items()}, file=sys.stderr, flush=True)
    columns = list(found["frozen generator"][0])
    table = [[name, *(cell([row[key] for row in rows]) for key in columns)] for name, rows in found.items()]
    print(json.dumps({"columns": ["arm", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
