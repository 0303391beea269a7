"""Do private updates hide canaries, and what does that cost? Sheet of row 74 (arXiv:2507.22565), experiment 1.

    .venv/bin/python docs/experiments/private_records.py --seeds 5

For each seed, from the bundled model with adapters, on records with 20 canaries: plain SFT, DP-SGD at epsilon 4, DP-SGD
with a badly chosen bound, adaptive clipping and RLDP. Prints the held-out loss and the exposure of the canaries, a line
a run, then means with 95 % intervals. Runs that are there already are not repeated.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.exposure import Exposure
from posttrain.components.tasks.records import Records
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.files import find_recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.statistics.intervals import mean

ARMS = {
    "sft": ["sft", "setting=private_records"],
    "dp_sgd": ["dp_sgd"],
    "rldp": ["rldp"],
    "quantile": ["rldp", "privacy.controller=quantile"],
    "dp_sgd clip=10": ["dp_sgd", "privacy.clip=10"],
}


def main() -> None:
    """Run what is missing and print what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("private_records"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Begin no run after this many seconds.")
    given = parser.parse_args()
    began, rows = time.monotonic(), []
    for seed in range(given.seeds):
        for arm in ARMS:
            kept = given.out / f"{seed}-{arm.replace(' ', '-')}.json"
            if not kept.exists():
                if time.monotonic() - began > given.seconds:
                    continue
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(one(arm, seed, given.out)))
            rows.append(json.loads(kept.read_text()))
            print(json.dumps(rows[-1]), flush=True)
    for arm in ARMS:
        for name in ("loss", "exposure", "epsilon", "steps"):
            values = [row[name] for row in rows if row["arm"] == arm and row[name] is not None]
            if len(values) > 1:
                found = mean(values)
                low, high = (round(end, 3) for end in found.interval)
                print(json.dumps({"arm": arm, name: round(found.value, 3), "low": low, "high": high}))


def one(arm: str, seed: int, out: Path) -> dict[str, Any]:
    """The numbers of one run."""
    name, *changes = ARMS[arm]
    common = [f"seed={seed}", f"tasks.seed={seed}", "threads=1", "checkpoints.every_steps=0"]
    recipe = find_recipe(name, [*changes, *common])
    folder, _ = start(replace(recipe, name=arm), out / f"seed_{seed}", LiveView(json=True))
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    held_out = json.loads((folder / "evals.jsonl").read_text().splitlines()[-1])
    model, unused = Model(source=str(folder / "model")), cast(Any, None)
    subject = Subject(name=arm, load=lambda: load_policy("policy", model, {}, torch.device("cpu")), serve=unused)
    found = Exposure(tasks=Records(seed=seed)).examine(subject).values
    return {
        "arm": arm,
        "seed": seed,
        "loss": held_out["held_out_loss"],
        "exposure": found["exposure"],
        "epsilon": last.get("epsilon"),
        "noise_multiplier": last.get("noise_multiplier"),
        "clip": last.get("clip"),
        "steps": last["step"],
    }


if __name__ == "__main__":
    sys.exit(main())
