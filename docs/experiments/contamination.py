"""Contamination: can Self-Critique tell the tasks that GRPO was trained on, and does it grow with training?

    .venv/bin/python docs/experiments/contamination.py --seeds 5 --steps 60

Sheet of row 104 (arXiv:2510.09259), experiments 1 and 2. For each seed, 100 sums are members and 100 others are not.
The bundled model is trained on the members by GRPO, or, as the negative control, by SFT on their demonstrations; areas
of every score before and after. The bundled model has seen no English: it is asked again by the same sum behind its
first answer, and in the control behind a line break. Prints a JSON line a seed, then means with 95 % intervals.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.contamination import Contamination
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.files import Files
from posttrain.engines.native import Native
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.statistics.intervals import mean

MEMBERS = 100
SCORES = ("self_critique", "without_answer", "likelihood", "min_k")


def main() -> None:
    """Run every seed and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    rows = []
    for seed in range(given.seeds):
        with TemporaryDirectory() as folder:
            rows.append(one_seed(Path(folder), seed, given.steps))
        print(json.dumps({"seed": seed, **rows[-1]}), flush=True)
    for name in rows[0]:
        found = mean([row[name] for row in rows])
        low, high = (round(end, 4) if np.isfinite(end) else None for end in found.interval)
        print(json.dumps({"number": name, "mean": round(found.value, 4), "low": low, "high": high}))


def one_seed(folder: Path, seed: int, steps: int) -> dict[str, Any]:
    """The areas of one seed, by model and score."""
    members, others = write_tasks(folder, seed)
    common = [f"seed={seed}", "threads=1", f"tasks={members}", "evaluation.holdout=1", "checkpoints.every_steps=0"]
    common += ["evaluation.tasks={kind: arithmetic, size: 50, terms: [3, 4], seed: 12345}", "lr=2e-4"]
    imitation = [f"max_steps={steps}", "epochs=1000", "sft.learner.schedule=constant"]
    models = {
        "start": "pebble",
        "grpo": trained(override(grpo(), [*common, f"steps={steps}"]), folder, "grpo"),
        "sft": trained(override(sft(), [*common, *imitation]), folder, "sft"),
    }
    row = {}
    for name, model in models.items():
        for text in ("prompt", "demonstration"):
            found = examined(model, members, others, text)
            names = SCORES if text == "prompt" else SCORES[2:]
            row |= {f"{name}/{score}{'' if text == 'prompt' else ' of demonstration'}": found[score]["auc"]
                    for score in names}  # fmt: skip
            row |= {f"{name}/shuffled": found["self_critique"]["shuffled"]["mean"]}
    return row


def write_tasks(folder: Path, seed: int) -> tuple[Path, Path]:
    """Members and others as files, dealt at random from one set of sums without repeats."""
    tasks = {str(task.prompt): task for task in Arithmetic(size=600, terms=(3, 4), seed=1000 + seed).load()}
    order = np.random.Generator(np.random.Philox(seed)).permutation(len(tasks))
    drawn = [list(tasks.values())[i] for i in order[: 2 * MEMBERS]]
    paths = (folder / "members.jsonl", folder / "others.jsonl")
    for path, part in zip(paths, (drawn[:MEMBERS], drawn[MEMBERS:]), strict=True):
        rows = [{"prompt": t.prompt, "answer": t.answer, "completion": t.demonstrations[0]} for t in part]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


def trained(recipe: Recipe, folder: Path, name: str) -> str:
    """The model that a run leaves."""
    made, _ = start(replace(recipe, name=name), folder, LiveView(json=True))
    return str(made / "model")


def examined(model: str, members: Path, others: Path, text: Any) -> dict[str, Any]:
    """What the diagnostic reports of a model."""
    subject = Subject(
        name=model,
        load=lambda: load_policy("policy", Model(source=model), {}, torch.device("cpu")),
        serve=lambda policy: Native().serve(policy, 0),
    )
    diagnostic = Contamination(
        members=Files(path=str(members)), others=Files(path=str(others)), max_tokens=48, text=text,
        again="{prompt}{answer}\n{prompt}", control="\n{prompt}",
    )  # fmt: skip
    found: dict[str, Any] = diagnostic.examine(subject).values["scores"]
    return found


if __name__ == "__main__":
    sys.exit(main())
