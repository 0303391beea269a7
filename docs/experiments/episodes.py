"""Held-out episodes of recipes over seeds: success, turns, calls, tokens and regret, before and after training.

    python docs/experiments/episodes.py userrl rlver --seeds 5 --runs runs/episodes

Each recipe runs on its default setting, once per seed; a run that is finished in the folder is read, not done again.
The first line of a recipe is the evaluation after its warm-up (``sft``), or of the model as it is made where there is
none, the second one the last of the run. The table is kept in docs/measured/experiments/ as ``episodes``, with a
sentence.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from posttrain import run
from posttrain.recipes.pages.experiments import EPISODES
from posttrain.statistics.intervals import mean

ALWAYS: Final = ["threads=1", "checkpoints.every_steps=0", "evaluation.samples=0"]
IN_SUMMARY: Final = dict(
    zip(EPISODES, ("accuracy", "mean_turns", "mean_calls", "mean_tokens", "mean_regret"), strict=True)
)
"""The name of each column in the summary of an evaluation."""


def episode_row(arm: str, seeds: Sequence[Mapping[str, float | None]]) -> list[str]:
    """A line of a table of held-out episodes: means over seeds with 95 % interval.

    ``-`` stands where a seed does not have such a number: there are no calls, or no optimum is known.
    """

    def cell(values: Sequence[float | None]) -> str:
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return "-"
        found = mean(known)
        return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"

    return [arm, *(cell([own.get(name) for own in seeds]) for name in EPISODES)]


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
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", nargs="*", default=[], help="changes of the recipes")
    parser.add_argument("--runs", type=Path, default=Path("runs/episodes"))
    given = parser.parse_args()
    table: list[list[str]] = []
    for name in given.recipes:
        found = [evaluations(run_of(name, seed, given.set, given.runs)) for seed in range(given.seeds)]
        table += [episode_row(f"`{name}` {when}", [own[when] for own in found]) for when in found[0]]
        print(name, table[-2:], file=sys.stderr, flush=True)
    seeds = f" --seeds {given.seeds}" + (f" --set {' '.join(given.set)}" if given.set else "")
    command = f"python docs/experiments/episodes.py {' '.join(given.recipes)}{seeds}"
    print(json.dumps({"episodes": {"said": "", "table": table, "command": command}}, indent=1))


if __name__ == "__main__":
    main()
