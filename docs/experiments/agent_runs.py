"""Runs of EEF and of FAFT beside their controls, and what their models reach on held-out tasks.

Each arm has one run per seed, on its default setting.

python docs/experiments/agent_runs.py eef     # or faft
"""

import argparse
import json
from pathlib import Path

import numpy as np

from posttrain import run
from posttrain.statistics.intervals import mean

ALWAYS = ["threads=1", "checkpoints.every_steps=0", "evaluation.samples=0"]
ARMS = {
    "eef": {
        "from the start only, 12 rollouts": ("eef", ["rollout.states=0", "rollout.n=12", "evaluation.holdout=30"]),
        "EEF, 8 rollouts and states of experts": ("eef", ["evaluation.holdout=30"]),
    },
    "faft": {
        "SFT on all routes": ("sft", ["evaluation.by=answers"]),
        "SFT on routes that pass, 60 epochs": (
            "sft",
            ["tasks.keep=passing", "sft.epochs=60", "evaluation.by=answers"],
        ),
        "FAFT": ("faft", ["evaluation.by=answers"]),
    },
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=sorted(ARMS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    table = []
    for arm, (name, changes) in ARMS[given.what].items():
        setting = "routes" if name == "sft" else None
        found = []
        for seed in range(given.seeds):
            own = [*ALWAYS, *changes, f"seed={seed}"]
            done = run(name, setting=setting, changes=own, out=given.out, quiet=True)
            summary = json.loads((done.folder / "summary.json").read_text(encoding="utf-8"))
            found.append(summary["accuracy_after"])
        own_mean = mean(np.array(found))
        cell = f"{own_mean.value:.2f} [{own_mean.interval.low:.2f}, {own_mean.interval.high:.2f}]"
        table.append([arm, cell])
    print(json.dumps({"columns": ["arm", "held-out accuracy"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
