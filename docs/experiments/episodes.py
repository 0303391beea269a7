"""Held-out episodes of recipes over seeds: success, turns, calls, tokens and regret, before and after training.

    python docs/experiments/episodes.py userrl rlver --seeds 5 --runs runs/episodes

Each recipe runs on its default setting, once per seed; a run that is finished in the folder is read, not done again.
The first line of a recipe is the evaluation after its warm-up (``sft``), or of the model as it is made where there is
none, the second one the last of the run. ``--write`` puts the table into a file of docs/measured/experiments/. Where an
environment measures no calls, or has no optimum, there is a ``-``.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from posttrain import run
from posttrain.recipes.pages.experiments import EPISODES, MEASURED
from posttrain.statistics.intervals import mean

ALWAYS: Final = ["threads=1", "checkpoints.every_steps=0", "evaluation.samples=0"]
IN_SUMMARY: Final = dict(
    zip(EPISODES, ("accuracy", "mean_turns", "mean_calls", "mean_tokens", "mean_regret"), strict=True)
)
"""The name of each column in the summary of an evaluation."""


def row(arm: str, seeds: Sequence[Mapping[str, float | None]]) -> list[str]:
    """A line of the table: means over seeds with 95 % interval, ``-`` where a seed has no such number."""
    return [arm, *(_cell([own.get(name) for own in seeds]) for name in EPISODES)]


def _cell(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return "-"
    found, digits = mean(np.array(known)), 2 if max(map(abs, known)) < 100 else 0
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def evaluations(folder: Path) -> dict[str, dict[str, float | None]]:
    """What the first evaluation, or that after the warm-up, and the last one of a run found."""
    lines = (folder / "evals.jsonl").read_text(encoding="utf-8").splitlines()
    summaries = [json.loads(line) for line in lines]
    first = next((own for own in summaries if own["name"] == "sft"), summaries[0])
    return {
        "before" if own["name"] == "before" else f"after {own['name']}": {
            name: own.get(key) for name, key in IN_SUMMARY.items()
        }
        for own in (first, summaries[-1])
    }


def run_of(name: str, seed: int, changes: Sequence[str], runs: Path) -> Path:
    """The folder of the finished run of a recipe with a seed."""
    done = runs / f"{name}-{seed}"
    if not done.exists():
        found = run(name, changes=[*ALWAYS, *changes, f"seed={seed}"], out=runs / "new", quiet=True)
        found.folder.rename(done)
    return done


def main() -> None:
    """Print the tables, and write them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", nargs="*", default=[], help="changes of the recipes")
    parser.add_argument("--runs", type=Path, default=Path("runs/episodes"))
    parser.add_argument("--write", help="the file in docs/measured/experiments/ that gets the table, without .json")
    parser.add_argument("--said", default="", help="a sentence for the page")
    given = parser.parse_args()
    table: list[list[str]] = []
    for name in given.recipes:
        found = [evaluations(run_of(name, seed, given.set, given.runs)) for seed in range(given.seeds)]
        table += [row(f"`{name}` {when}", [own[when] for own in found]) for when in found[0]]
        print(name, table[-2:], file=sys.stderr, flush=True)
    seeds = f" --seeds {given.seeds}" + (f" --set {' '.join(given.set)}" if given.set else "")
    command = f"python docs/experiments/episodes.py {' '.join(given.recipes)}{seeds}"
    write({"said": given.said, "table": table, "command": command}, given.write)


def write(episodes: Mapping[str, Any], name: str | None) -> None:
    """Print a table of episodes, and put it into a file of measurements."""
    print(json.dumps(episodes, indent=1))
    if name is not None:
        path = MEASURED / f"{name}.json"
        measured = json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps({**measured, "episodes": episodes}, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
