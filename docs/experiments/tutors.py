"""Pedagogical alignment: pairs of the model's own wrong records, against more imitation of the same references.

    .venv/bin/python docs/experiments/tutors.py --seeds 5

Sheet of row 24 (arXiv:2402.05000). For each seed a new model imitates 150 records of a tutor. From there, on 300 other
tasks: more imitation, or DPO, IPO or KTO on pairs of the reference and the model's own record where a label differs.
All arms take as many steps. Prints a line of JSON for each seed and arm: accuracy of each label on turns that nothing
was trained on, and the share of turns with a hint in which the hint is likelier, a token, than the solution given; then
the means over seeds, and the differences from more imitation, with 95 % intervals.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.records import Records
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.preferences.ipo import IPO
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.tutoring import FIELDS, Tutoring
from posttrain.engines.native import Native
from posttrain.methods.preference.kto import kto
from posttrain.methods.preference.tutors import tutors
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import preference_of, sft_of, with_stage
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.settings.tutoring import IMITATED, tutoring
from posttrain.statistics.intervals import mean

STEPS = 40
COMMON = ["threads=1", "evaluation.by=none", "checkpoints.every_steps=0"]


def arms(rate: float) -> dict[str, Recipe]:
    """The recipes of the second part, by name."""
    recipe = tutors()
    stage = preference_of(recipe)
    learner = replace(stage.learner, optimizer=AdamW(lr=rate))
    stage = replace(stage, max_steps=STEPS, epochs=1000.0, learner=learner)
    pairs = replace(with_stage(recipe, stage), stages={"dpo": stage})
    imitation = sft_of(tutoring())
    imitation = replace(imitation, skip=IMITATED, limit=None, max_steps=STEPS, learner=learner)
    rated = kto(pairs)
    rated = replace(rated, stages={"kto": replace(rated.stages["dpo"], batch=32)})  # type: ignore[type-var]
    return {
        "imitation": replace(recipe, stages={"sft": imitation}),
        "dpo": pairs,
        "ipo": with_stage(pairs, replace(stage, loss=IPO())),
        "kto": rated,
    }


def main() -> None:
    """Run every seed and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rate", type=float, default=1e-4)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    with TemporaryDirectory() as folder:
        test = written(Path(folder))
        for seed in range(given.first, given.first + given.seeds):
            first = tutoring()
            first = replace(first, stages={"sft": sft_of(first)}, models={"policy": first.models["policy"]})
            base = started(first, seed, f"first-{seed}", folder)
            rows = {"first": measured(base, test)}
            for arm, recipe in arms(given.rate).items():
                models = {**recipe.models, "policy": Model(source=str(base), trained=True)}
                models = models if arm != "imitation" else {"policy": models["policy"]}
                rows[arm] = measured(started(replace(recipe, models=models), seed, f"{arm}-{seed}", folder), test)
            for arm, row in rows.items():
                found.setdefault(arm, []).append(row)
                print(json.dumps({"seed": seed, "arm": arm, **row}), flush=True)
    for arm, results in found.items():
        numbers = {name: spread([row[name] for row in results]) for name in results[0]}
        pairs = list(zip(results, found["imitation"], strict=True))
        gains = {name: spread([ours[name] - theirs[name] for ours, theirs in pairs]) for name in results[0]}
        print(json.dumps({"arm": arm, **numbers, "against imitation": gains}))


def started(recipe: Recipe, seed: int, name: str, folder: str) -> Path:
    """The model that a run leaves."""
    recipe = replace(override(recipe, [f"seed={seed}", *COMMON]), name=name)
    made, _ = start(recipe, Path(folder), LiveView(json=True))
    return made / "model"


def written(folder: Path) -> Path:
    """A file of 400 turns, none of which is among those that are trained on."""
    known = {task.prompt for task in tutoring().tasks.load()}
    tasks = [task for task in Tutoring(size=2000, seed=1).load() if task.prompt not in known][:400]
    path = folder / "test.jsonl"
    rows = [{"prompt": task.prompt, "answer": task.answer, **task.fields} for task in tasks]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def measured(model: Path, test: Path) -> dict[str, float]:
    """The numbers of a model."""

    def load() -> Policy:
        return load_policy("policy", Model(source=str(model)), {}, torch.device("cpu"))

    subject = Subject(name="model", load=load, serve=lambda policy: Native().serve(policy, 0))
    found: Any = Records(tasks=Files(path=str(test)), fields=FIELDS, max_tokens=64).examine(subject).values["found"]
    row = found["model"]
    labels = {name: row[name]["accuracy"] for name in FIELDS}
    f1 = {f"{name} F1": row[name]["macro_f1"] for name in FIELDS}
    return {**labels, "all": row["all"], "hint likelier": row["reference_likelier"], **f1}


def spread(values: list[float]) -> list[float]:
    """Mean and interval."""
    found = mean(values)
    return [round(x, 4) for x in (found.value, *found.interval)]


if __name__ == "__main__":
    sys.exit(main())
