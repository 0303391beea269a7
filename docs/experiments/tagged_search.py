"""RFTT at inference: accuracy of finished runs when held-out tasks are answered by 1, 4 and 16 rollouts of the search.

The answer is the path that the process model scores highest, or one whose answer most paths have (votes).

    posttrain compare rftt "rftt ..." --out FOLDER
    python docs/experiments/tagged_search.py FOLDER/CONTENDER --rollouts 1 4 16

CONTENDER is a folder with a run for each seed. Prints a row for each number of rollouts: mean accuracy over the seeds
with 95 % intervals, the difference from the first number within seeds, and the number of different paths.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from posttrain.components.rollouts.searched import Searched
from posttrain.components.search import Search
from posttrain.components.search.functions import Functions
from posttrain.recipes.changes import rl_of
from posttrain.recipes.files import find_recipe
from posttrain.runs.measuring import answers_of, context_for
from posttrain.statistics.intervals import mean


def answered(run: Path, rollouts: int, votes: bool) -> dict[str, Any]:
    """The summary of answers by search of a run's held-out tasks."""
    rollout = rl_of(find_recipe(str(run), [])).rollout
    assert isinstance(rollout, Searched) and isinstance(rollout.search, Functions), f"{run} is no run of rftt"
    search = replace(rollout.search, rollouts=rollouts, votes=votes, value_role=None if votes else "process")
    setting = f"evaluation.search={TypeAdapter(Search).dump_json(search).decode()}"
    summary, _ = answers_of(context_for(str(run), ["threads=1", setting], None, None))
    found: dict[str, Any] = summary["searched"]
    return found


def row(runs: list[Path], rollouts: int, votes: bool, first: list[float]) -> tuple[list[float], list[str]]:
    """Accuracies by seed, and the row of the table."""
    found = [answered(run, rollouts, votes) for run in runs]
    accuracies = [float(one["accuracy"]) for one in found]
    cells = ["votes" if votes else "process model", str(rollouts), told(accuracies)]
    paths = sum(one["rollouts"] for one in found) / len(found)
    gained = told([a - b for a, b in zip(accuracies, first, strict=True)]) if first else ""
    return accuracies, [*cells, gained, f"{paths:.1f}"]


def told(values: list[float]) -> str:
    """A mean in percent, with its interval where there are several values."""
    found = mean(values)
    interval = f" [{found.interval[0]:.1%}, {found.interval[1]:.1%}]" if len(values) > 1 else ""
    return f"{found.value:.1%}{interval}"


def main() -> None:
    """Prints the table as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rollouts", type=int, nargs="+", default=[1, 4, 16])
    given = parser.parse_args()
    runs = sorted(path.parent for path in given.folder.rglob("summary.json"))
    table = []
    for votes in (False, True):
        first: list[float] = []
        for rollouts in given.rollouts:
            accuracies, cells = row(runs, rollouts, votes, first)
            first = first or accuracies
            table.append(cells)
            print(cells, flush=True)
    columns = ["value", "rollouts", "accuracy", "against the first", "different paths"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
