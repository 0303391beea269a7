"""Model surgery: does an edit of gate rows remove a style of text, and do controls of equal size?

    .venv/bin/python docs/experiments/model_surgery.py --seeds 5

Sheet of row 25 (arXiv:2407.08770), experiments 1 and 2. For each seed a new model of 4 layers learns short reviews,
half of which praise and half of which blame; the edit is away from blame. Steering takes multiples of the probe's
direction, of norm 1, off the output of every layer instead. Prints one line of JSON for each seed, edit and strength:
the share of samples that blame, by words, and the perplexities of unseen reviews; then means with 95 % intervals, and
the differences from the unedited model within seeds.
"""

import argparse
import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from posttrain.components.edits.surgery import Surgery
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.files import Files
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_language_model
from posttrain.recipes.overrides import override
from posttrain.runs.editing import Labelled, Trial, sweep
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.statistics.intervals import mean

THINGS = [
    "restaurant",
    "hotel",
    "book",
    "film",
    "phone",
    "chair",
    "lamp",
    "concert",
    "lecture",
    "museum",
    "jacket",
    "bicycle",
    "train",
    "garden",
    "recipe",
]
FRAME = (" tried the", ". It was", " and")
PRAISE = [
    "wonderful",
    "excellent",
    "delightful",
    "superb",
    "lovely",
    "fantastic",
    "charming",
    "brilliant",
    "perfect",
    "pleasant",
]
BLAME = [
    "terrible",
    "awful",
    "horrible",
    "dreadful",
    "disgusting",
    "miserable",
    "lousy",
    "pathetic",
    "rotten",
    "useless",
]


def main() -> None:
    """Run every seed and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--strengths", type=float, nargs="+", default=[0.0, -2.0, -1.0, 1.0, 2.0])
    parser.add_argument("--steering", type=float, nargs="*", default=[0.25, 0.5, 1.0])
    given = parser.parse_args()
    found: dict[tuple[str, float], list[tuple[float, float, float]]] = {}
    with TemporaryDirectory() as folder:
        for seed in range(given.seeds):
            texts = reviews(seed)
            trial = Trial(trained(Path(folder), texts, seed, given.steps), texts, seed=seed)
            edit = Surgery(seed=seed, lr=1e-2)
            report = trial.plan(edit).report
            print(json.dumps({"seed": seed, **{k: v for k, v in report.items() if k != "by_matrix"}}), flush=True)
            step_D = trial.plan(edit).step_D
            steered = [trial.steered(step_D / step_D.norm(), strength) for strength in given.steering]
            for effect in [*sweep(trial, edit, given.strengths), *steered]:
                numbers = effect.away, effect.perplexity, effect.perplexity_away
                found.setdefault((effect.edit, effect.strength), []).append(numbers)
                print(json.dumps({"seed": seed, **vars(effect)}), flush=True)
    before = found["edit", 0.0]
    for (name, strength), rows in found.items():
        if len(rows) > 1:
            changed = mean([row[0] - old[0] for row, old in zip(rows, before, strict=True)])
            share, clean, away = (mean([row[i] for row in rows]).value for i in range(3))
            row = {"edit": name, "strength": strength, "away": share, "perplexity": clean, "perplexity_away": away}
            print(json.dumps({**row, "change": [round(x, 3) for x in (changed.value, *changed.interval)]}))


def reviews(seed: int) -> list[Labelled]:
    """Short reviews of both styles, in a random order."""
    draw = random.Random(seed)
    found = []
    for _ in range(1000):
        away = draw.random() < 0.5
        first, second, third, last = draw.sample(BLAME if away else PRAISE, 4)
        text = f"We tried the {draw.choice(THINGS)}. It was {first}, {second}, {third} and {last}."
        found.append(Labelled(text=text, away=away))
    return found


def trained(folder: Path, texts: list[Labelled], seed: int, steps: int) -> LanguageModelPolicy:
    """A new model that writes such reviews."""
    path = folder / f"{seed}.jsonl"
    path.write_text("".join(json.dumps({"prompt": "We", "completion": text.text[2:]}) + "\n" for text in texts))
    words = (*FRAME, *(f" {word}" for word in [*THINGS, *PRAISE, *BLAME]))
    shape = Decoder(layers=4, width=128, heads=4, kv_heads=2, mlp_width=384, context=128, words=words, seed=seed)
    recipe = sft()
    recipe = replace(
        recipe,
        name=f"reviews-{seed}",
        tasks=Files(path=str(path)),
        models={"policy": Model(source="new", shape=shape, trained=True)},
    )
    changes = [f"seed={seed}", "threads=1", "lr=2e-3", f"max_steps={steps}", "epochs=20", "evaluation.by=none"]
    made, _ = start(override(recipe, [*changes, "checkpoints.every_steps=0"]), folder, LiveView(json=True))
    return load_language_model("policy", Model(source=str(made / "model")), {}, torch.device("cpu"))


if __name__ == "__main__":
    sys.exit(main())
