"""Curricula on learners with known difficulties, beside what was measured before any of them was written.

One command for all tables: the curricula of `posttrain diagnose curriculum` (one skill, six domains, steps divided by
groups with spread, fewer and more tasks) and the arms of `posttrain diagnose hints`. Each number stands beside that of
an independent simulation that planned them, of which only the means were kept. A number agrees where both are within
two standard errors of their difference; the planned one is taken to have the standard error of the measured one, but at
least half of the last digit that it is written with. The planned MoPPS had 8 candidates a task, the recipe has 16:
`posttrain diagnose curriculum "{kind: thompson, candidates: 8}" seeds=40` has the planned regret.

    python docs/experiments/curricula.py --seeds 40
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

SEC = "{kind: bandit, temperature: 0.2}"
SHORT = {SEC: "sec, 0.2", "{kind: thompson, keep: 0.5}": "mopps, lam 0.5", "{kind: ucb, temperature: 1}": "dump, tau 1"}
MAIN = ("uniform", "mopps", "vas", "dump", SEC, "pcl")
Planned = Mapping[str, Mapping[str, float]]

ONE_SKILL: Planned = {
    "spread": {
        "uniform": 0.560, "mopps": 0.642, "vas": 0.659, "dump": 0.808, SEC: 0.863, "pcl": 0.870, "oracle": 0.991
    },
    "regret": {"uniform": 0.294, "mopps": 0.259, "vas": 0.244, "dump": 0.193, SEC: 0.187, "pcl": 0.186, "oracle": 0.0},
    "rollouts_to": {
        "uniform": 5322, "mopps": 4608, "vas": 10506, "dump": 3594, SEC: 3274, "pcl": 3277, "oracle": 2694,
        "oversampled": 20224,
    },
}  # fmt: skip
SHUFFLED: Planned = {"rollouts_to": {"pcl": 5338}}
DOMAINS: Planned = {
    "accuracy": {
        "uniform": 0.712, "mopps": 0.684, "{kind: thompson, keep: 0.5}": 0.712, "dump": 0.697,
        "{kind: ucb, temperature: 1}": 0.733, SEC: 0.705, "pcl": 0.617, "vas": 0.749, "oracle": 0.990,
    },
    "coin": {"uniform": 0.17, "dump": 0.58, SEC: 0.59},
}  # fmt: skip
TITLES = {
    "spread": "groups with spread",
    "regret": "regret a step",
    "rollouts_to": "rollouts to .6",
    "coin": "share of the coin flip",
}
RATIO_SPREAD = {"mopps": 0.98, "dump": 0.95, SEC: 0.94, "oracle": 0.89}
RATIO_VISITS = {128: 0.70, 512: 0.87, 2000: 0.98}
HINTS = {"grpo": 0.03, "more": 0.01, "always": 0.54, "ladder": 0.97}


def diagnosed(what: str, *arguments: str) -> dict[str, Any]:
    """What a diagnostic finds, by subject."""
    command = [sys.executable, "-m", "posttrain", "diagnose", what, *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return dict(found["found"])


def line(table: str, name: str, number: float, error: float, planned: float) -> list[Any]:
    """A row of the result."""
    digits = 0 if planned >= 1000 else 3
    written = 0.5 if planned >= 1000 else 0.5 * 10.0 ** -len(f"{planned:g}".partition(".")[2])
    bound = 2.0 * math.hypot(error, max(error, written))
    shown = f"{number:,.{digits}f} ± {error:,.{digits}f}"
    agrees = "yes" if abs(number - planned) <= bound else "no"
    return [table, SHORT.get(name, name), shown, f"{planned:,.{digits}f}" if digits == 0 else f"{planned:g}", agrees]


def lines(table: str, planned: Planned, found: Mapping[str, Any]) -> list[list[Any]]:
    """Rows of the numbers that one diagnosis gives directly."""
    rows = []
    for column, numbers in planned.items():
        for name, number in numbers.items():
            own = found[name]
            title = f"{table}: {TITLES.get(column, column)}"
            if column == "coin":
                rows.append(line(title, name, own["shares"]["coin flip"], 0.005, number))
            elif own[column] is not None:
                value = own[column]
                rows.append(line(title, name, value["mean"], value["standard_error"], number))
    return rows


def ratio(found: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Rollouts to the accuracy beside uniform's, and its standard error."""
    own, other = found[name]["rollouts_to"], found["uniform"]["rollouts_to"]
    value = own["mean"] / other["mean"]
    relative = math.hypot(*(one["standard_error"] / one["mean"] for one in (own, other)))
    return value, value * relative


def everything(seeds: str) -> list[list[Any]]:
    """All rows, in order."""
    rows = lines("one skill", ONE_SKILL, diagnosed("curriculum", *MAIN, seeds))
    rows += lines("one skill, shuffled", SHUFFLED, diagnosed("curriculum", "pcl", "shuffled=true", seeds))
    spread = diagnosed("curriculum", "uniform", "mopps", "dump", SEC, "divide=spread", seeds)
    for name, planned in RATIO_SPREAD.items():
        rows.append(line("divided by groups with spread: rollouts beside uniform", name, *ratio(spread, name), planned))
    for tasks, planned in RATIO_VISITS.items():
        few = diagnosed("curriculum", "uniform", "mopps", f"tasks={tasks}", seeds)
        rows.append(line(f"{tasks} tasks: rollouts beside uniform", "mopps", *ratio(few, "mopps"), planned))
    given = [name for name in DOMAINS["accuracy"] if name != "oracle"]
    rows += lines("domains", DOMAINS, diagnosed("curriculum", *given, "world=domains", seeds))
    hints = diagnosed("hints", *HINTS, seeds)
    for name, planned in HINTS.items():
        own = hints[name]
        error = (own["high"] - own["low"]) / 4.0  # of a 95 % interval of many seeds
        rows.append(line("hints, transfer 0.5: success", name, own["mean"], error, planned))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=40)
    columns: Sequence[str] = ("table", "curriculum", "measured", "planned", "agrees")
    print(json.dumps({"columns": columns, "table": everything(f"seeds={parser.parse_args().seeds}")}, indent=1))


if __name__ == "__main__":
    main()
