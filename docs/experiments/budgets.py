"""Success by budget of models that imitated answers, or dialogues with a tool (MINT).

Sums of two numbers up to 30. Of one model all demonstrations are an answer, of the other a call and then the answer;
both are new models of 200k weights, trained alike in the environment `budgeted` with 5 steps. Held-out sums are then
asked with 1 to 5 steps, each in a run of its own, beside those who guess one of four. ``episodes`` has the models'
episodes of each budget; regret is what the verdict misses of 1.

    python docs/experiments/budgets.py
"""

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import torch
from episodes import episode_row

from posttrain import run
from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.budgets import Budgets
from posttrain.components.environments.budgeted import Budgeted
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rollouts.turns import Turns
from posttrain.components.schedules.cosine import Cosine
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import sft_of
from posttrain.statistics.intervals import mean
from posttrain.training.settings import Learning

WORDS = (
    "<execute>",
    "</execute>",
    "<solution>",
    "</solution>",
    " steps, ",
    " proposals left.",
    " Propose an answer.",
    " plus ",
)
SHAPE = Decoder(layers=2, width=64, mlp_width=192, words=(*WORDS, *(str(number) for number in range(10, 61))))


def write(folder: Path, seed: int) -> tuple[Path, Path, Path]:
    """Files of answers, of dialogues, and of held-out sums."""
    rng = Random(seed)
    sums = [(a, b) for a in range(1, 31) for b in range(1, 31)]
    rng.shuffle(sums)
    names = ("answers", "dialogues", "held_out")
    rows: dict[str, list[dict[str, str]]] = {name: [] for name in names}
    for place, (a, b) in enumerate(sums):
        answer, call = f"<solution>{a + b}</solution>", f"<execute>{a}+{b}</execute>"
        plain = {"prompt": f"{a} plus {b}?", "answer": str(a + b)}
        if place < 100:
            rows["held_out"].append(plain)
        else:
            rows["answers"].append(plain | {"completion": answer})
            rows["dialogues"].append(plain | {"completion": call + answer})
    for name, own in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own), encoding="utf-8")
    return folder / "answers.jsonl", folder / "dialogues.jsonl", folder / "held_out.jsonl"


def trained(data: Path, folder: Path, seed: int, epochs: int) -> Path:
    """A model that has imitated the file."""
    plain = sft()
    learner = Learning(optimizer=AdamW(lr=3e-3), schedule=Cosine(warmup=0.05))
    recipe = replace(
        plain,
        models={"policy": Model(source="new", shape=SHAPE, trained=True)},
        tasks=Played(tasks=Files(path=str(data)), environment=Budgeted()),
        stages={"sft": replace(sft_of(plain), epochs=float(epochs), learner=learner)},
        evaluation=Evaluation(by="none"),
        seed=seed,
        threads=1,
    )
    return run(recipe, out=folder, quiet=True).folder / "model"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed; each seed's numbers go to stderr")
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    found: dict[str, list[list[float]]] = {}
    played: dict[str, list[dict[str, float]]] = {}
    for seed in range(given.first, given.first + given.seeds):
        with tempfile.TemporaryDirectory() as name:
            *data, asked = write(Path(name), seed)
            models = {path.stem: trained(path, Path(name) / "runs", seed, given.epochs) for path in data}
            rollout = Turns(environment=Budgeted(), sampling=Sampling(max_tokens=16, temperature=0.0))
            diagnostic = Budgets(rollout=rollout, tasks=Files(path=str(asked)))
            subjects = [
                Subject(
                    name=own,
                    load=lambda path=path: load_policy(  # type: ignore[misc]
                        "policy", Model(source=str(path)), {}, torch.device("cpu")
                    ),
                    serve=lambda policy: Native().serve(policy, 0),
                )
                for own, path in models.items()
            ]
            subjects.append(Subject(name="guess4", load=lambda: None, serve=lambda policy: None))  # type: ignore[arg-type, return-value]
            for own, row in diagnostic.examine(*subjects).values["found"].items():
                found.setdefault(own, []).append([*row["success"], row["slope"], row["feedback_gain"]])
                for steps, means in enumerate(row.get("episodes", ()), start=1):
                    budget = f"{own}, {steps} step{'s' if steps > 1 else ''}"
                    played.setdefault(budget, []).append({**means, "regret": 1 - means["success"]})
        print(json.dumps({own: rows[-1] for own, rows in found.items()}), file=sys.stderr, flush=True)
    table = []
    for own, rows in found.items():
        cells = [mean(np.array(column)) for column in zip(*rows, strict=True)]
        table.append([own, *(f"{c.value:.2f} [{c.interval.low:.2f}, {c.interval.high:.2f}]" for c in cells)])
    columns = ["player", *(f"SR_{k}" for k in range(1, 6)), "slope", "feedback gain"]
    episodes = [episode_row(name, own) for name, own in played.items()]
    print(json.dumps({"columns": columns, "table": table, "episodes": episodes}, indent=1))


if __name__ == "__main__":
    main()
