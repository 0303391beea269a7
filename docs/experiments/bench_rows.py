"""VeriPrefer: what test benches with half the rows of inputs do to pairs and to the model, beside VeriReason.

    .venv/bin/python docs/experiments/bench_rows.py --seeds 5

Sheet of row 261 (arXiv:2504.15804), both experiments. Each seed imitates 2,000 circuits with three inputs, and takes
one round of pairs from 80 specifications with 8 modules each, ranked by a bench of all eight rows of inputs or of the
first four; VeriReason samples as many modules in 5 steps. Held out are 100 other circuits, with whole benches. A
pair is in the wrong order if the module that the bench ranks lower is correct in more of all eight rows than the other
one. Prints one line of JSON for each seed and arm, then means with 95 % intervals.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from posttrain.components.rewards.verilog import Verilog
from posttrain.components.tasks.circuits import Circuits
from posttrain.components.tasks.files import Files
from posttrain.evaluation.completions import score_completions
from posttrain.recipes.files import find_recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.statistics.intervals import mean

ARMS = {
    "all eight rows": ("veriprefer", 8, ["rl.prompts=80"]),
    "four rows": ("veriprefer", 4, ["rl.prompts=80"]),
    "VeriReason": ("verireason", 8, ["rl.steps=5"]),
}
HELD_OUT = ["evaluation.tasks={kind: circuits, size: 100, seed: 9}", "evaluation.holdout=100"]


def main() -> None:
    """Run every seed and arm, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=2e-5, help="learning rate of the pairs")
    given = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with TemporaryDirectory() as folder:
        for seed in range(given.first, given.first + given.seeds):
            for name in ARMS:
                row = measured(Path(folder), name, seed, given.rate)
                print(json.dumps({"seed": seed, "arm": name, **row}), flush=True)
                for key, value in row.items():
                    found[name, key].append(value)
    for (name, key), values in found.items():
        if len(values) > 1:
            middle = mean(values)
            print(json.dumps({"arm": name, key: [round(x, 4) for x in (middle.value, *middle.interval)]}))


def measured(folder: Path, name: str, seed: int, rate: float) -> dict[str, Any]:
    """The results of one run."""
    recipe, rows, changes = ARMS[name]
    tasks = written(folder / f"{rows}.jsonl", rows)
    changes = [*changes, f"seed={seed}", "threads=1", "checkpoints.every_steps=0", f"tasks={tasks}", *HELD_OUT]
    if recipe == "veriprefer":
        changes.append(f"rl.learner.optimizer.lr={rate}")
    made, summary = start(find_recipe(recipe, changes), folder / f"{seed}-{rows}", LiveView(json=True))
    row = {stage["name"]: stage["accuracy_after"] for stage in summary["stages"]}
    row["sampled_tokens"] = summary["sampled_tokens"]
    return {**row, **orders(made, written(folder / "8.jsonl", 8))} if rows == 4 else row


def written(path: Path, rows: int) -> Path:
    """The circuits with benches of the first rows, as a file."""
    with path.open("w") as file:
        for task in Circuits(size=2000, seed=0).load():
            fields = task.fields
            bench, expected = fields["testbench"].replace("i < 8", f"i < {rows}"), fields["rows"][:rows]
            row = {"prompt": task.prompt, "completion": task.demonstrations[0], "reference": fields["reference"]}
            file.write(json.dumps({**row, "testbench": bench, "rows": expected}) + "\n")
    return path


def orders(run: Path, circuits: Path) -> dict[str, float]:
    """Groups with a pair, and the share of pairs that a bench of all eight rows puts the other way round."""
    groups: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for path in (run / "rollouts").glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            if row["stage"] == "rl":
                groups[row["prompt"]].append((row["reward"], row["completion"]))
    pairs = {prompt: (max(group), min(group)) for prompt, group in groups.items()}
    pairs = {prompt: (high, low) for prompt, (high, low) in pairs.items() if high[0] > low[0]}
    known = {row["prompt"]: row for row in map(json.loads, circuits.read_text().splitlines())}
    path = run / "pairs.jsonl"
    rows = ({**known[prompt], "completion": [high[1], low[1]]} for prompt, (high, low) in pairs.items())
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward = Verilog(right=1.0, compiles=0.0, structure=0.0, partial=1.0)
    values = [one.score.value for one in score_completions(reward, Files(path=str(path)).load())]
    wrong = sum(high < low for high, low in zip(values[::2], values[1::2], strict=True))
    return {"pairs": len(pairs), "wrong_order": wrong / len(pairs)}


if __name__ == "__main__":
    sys.exit(main())
