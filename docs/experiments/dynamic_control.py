"""Do strengths of controllers move what they should, and only as far as a text allows?

The recipe `ldc` at its default, of which only what it trains is asked: the strength of each dimension from -1 to 1 with
the others 0, 64 ideas each, and the share of its letter; mixtures of two dimensions from one to the other, and both
shares (a curve); the same of a policy without controllers that is rewarded by a fixed mixture of both (one point);
strengths by sentence (novelty, effectiveness, feasibility), constant thirds, and those that the network plans, and the
share of each section's letter.

    python docs/experiments/dynamic_control.py --seeds 5
"""

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain import run
from posttrain.components.tasks.ideas import DIMENSIONS, SECTIONS, share
from posttrain.engines import Sampling, wait_for
from posttrain.engines.native import Native
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.rewards.ldc import ldc
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.statistics.intervals import mean
from posttrain.types import Task

STRENGTHS = (-1.0, -0.5, 0.0, 0.5, 1.0)
IDEAS = 64
SCHEDULE = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]


class Asked:
    """A trained policy that writes ideas by strengths."""

    def __init__(self, folder: Path) -> None:
        self.policy = load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))
        self.server: Any = Native().serve(self.policy, 0)

    def ideas(self, eps: Any) -> list[str]:
        """Ideas by rows of strengths."""
        task = Task(key="q", prompt="Idea (abc):", fields={"eps": eps})
        prompt, sampling = self.policy.prompt(task), Sampling(max_tokens=28)
        found = wait_for(self.server.bind(str(eps)).sample(prompt.token_ids, IDEAS, sampling, prompt.vectors))
        return [completion.text for completion in found]

    def shares(self, eps: Any) -> list[float]:
        """Mean share of each dimension's letter."""
        texts = self.ideas(eps)
        return [float(np.mean([share(text, letter) for text in texts])) for letter in DIMENSIONS.values()]

    def sections(self, eps: Any) -> list[float]:
        """Mean share of each sentence's own letter."""
        rows = [text.split(".") for text in self.ideas(eps)]
        return [
            float(np.mean([share(row[i], letter) if len(row) > i else 0.0 for row in rows]))
            for i, letter in enumerate(SECTIONS)
        ]


def one(seed: int, folder: Path) -> dict[str, list[float]]:
    """The numbers of a seed."""
    done = run(replace(ldc(), seed=seed, threads=1), out=folder, quiet=True)
    summary = json.loads((done.folder / "summary.json").read_text())
    asked = Asked(max((done.folder / "checkpoints").iterdir()) / "models" / "policy")
    found = {"held-out ideas that are right, before and after, %": [
        100 * summary["accuracy_before"], 100 * summary["accuracy_after"]]}  # fmt: skip
    for k, name in enumerate(DIMENSIONS):
        curve = [asked.shares([[eps * (i == k) for i in range(3)]])[k] for eps in STRENGTHS]
        found[f"share by strength of {name}, -1 to 1"] = curve
        found[f"never falls with the strength, {name}"] = [float(np.all(np.diff(curve) >= 0))]
    mixed = [asked.shares([[1 - w, w, 0.0]])[:2] for w in (0.0, 0.25, 0.5, 0.75, 1.0)]
    found["novelty, from novelty alone to feasibility alone"] = [row[0] for row in mixed]
    found["feasibility, the same"] = [row[1] for row in mixed]
    found["novelty and feasibility by a fixed mixture of rewards"] = mixture(seed, folder / "mixture")
    found["section letters, strengths by sentence"] = asked.sections(SCHEDULE)
    found["section letters, constant thirds"] = asked.sections([[1 / 3, 1 / 3, 1 / 3]])
    found["section letters, planned"] = asked.sections("planned")
    found["section letters, the base"] = asked.sections([[0.0, 0.0, 0.0]])
    return found


def mixture(seed: int, folder: Path) -> list[float]:
    """Shares of novelty and feasibility of a policy without controllers that a fixed mixture of both rewards."""
    recipe = ldc()
    tasks = replace(recipe.tasks, draw="rows", rows=((0.5, 0.5, 0.0),))
    models = {**recipe.models, "policy": replace(recipe.models["policy"], controllers=None)}
    stages = {name: stage for name, stage in recipe.stages.items() if name != "planning"}
    recipe = replace(recipe, tasks=tasks, models=models, stages=stages, seed=seed, threads=1)
    done = run(replace(recipe, evaluation=Evaluation(by="none")), out=folder, quiet=True)
    return Asked(max((done.folder / "checkpoints").iterdir()) / "models" / "policy").shares([[0.5, 0.5, 0.0]])[:2]


def shown(values: list[float]) -> str:
    """Mean and interval."""
    found = mean(np.array(values))
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument("--out", type=Path, help="A folder for the numbers of each seed; those in it are kept.")
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
    table = [
        [name, "; ".join(shown([result[name][i] for result in results]) for i in range(len(results[0][name])))]
        for name in results[0]
    ]
    print(json.dumps({"columns": ["what", "means"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
