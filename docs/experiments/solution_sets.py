"""All solutions or one of them, and a stage that searches in the open first. Sheet of row 284 (arXiv:2505.12717).

A table: 24 puzzles with three solutions each and six false candidates. An answer lists each candidate with a
probability of its own, independently: sigmoid of a logit that begins at -0.5 for solutions and at -1.5 for the others
where a tree is written in the answer, and at -2.5 and -3 where the model thinks as usual. A step samples every puzzle 8
times and takes the gradient of rewards less the group's mean; half of what is learned in one way is added to the other.
400 steps in all.

    two stages    200 steps with the tree, then 200 as usual
    as usual      400 steps as usual
    with a tree   400 steps with the tree
    one solution  two stages with the reward 1 where some solution is listed

Reported for the usual way, exact: the probability of exactly the set of solutions, and of listing at least one of them.

    python docs/experiments/solution_sets.py --seeds 5
    python docs/experiments/solution_sets.py --seeds 5 --default

``--default`` runs `totrl` as it is and has the whole sets of held-out puzzles, in percent, after each stage.
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from posttrain.methods.curriculum.totrl import totrl
from posttrain.recipes.overrides import override
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.statistics.intervals import mean

PUZZLES, RIGHT, WRONG, N, STEPS, RATE, SHARED = 24, 3, 6, 8, 400, 0.3, 0.5
TREE, USUAL = 0, 1
ARMS = {
    "two stages": (200, "all"),
    "as usual": (0, "all"),
    "with a tree": (400, "all"),
    "one solution": (200, "one"),
}


def play(tree_steps: int, need: str, seed: int) -> dict[str, float]:
    """What the usual way does after all steps."""
    rng = np.random.default_rng([seed, 1])
    start = np.array([[-0.5] * RIGHT + [-1.5] * WRONG, [-2.5] * RIGHT + [-3.0] * WRONG])
    logits = start[:, None] + rng.normal(0.0, 0.3, (2, PUZZLES, RIGHT + WRONG))
    for step in range(STEPS):
        way = TREE if step < tree_steps else USUAL
        p = 1.0 / (1.0 + np.exp(-logits[way]))
        listed = rng.random((PUZZLES, N, RIGHT + WRONG)) < p[:, None]
        right, wrong = listed[:, :, :RIGHT], listed[:, :, RIGHT:]
        reward = (right.all(2) & ~wrong.any(2) if need == "all" else right.any(2)).astype(float)
        advantage = reward - reward.mean(1, keepdims=True)
        learned = RATE * (advantage[:, :, None] * (listed - p[:, None])).sum(1)
        logits[way] += learned
        logits[1 - way] += SHARED * learned
    p = 1.0 / (1.0 + np.exp(-logits[USUAL]))
    return {
        "the whole set": float((p[:, :RIGHT].prod(1) * (1.0 - p[:, RIGHT:]).prod(1)).mean()),
        "one of them": float((1.0 - (1.0 - p[:, :RIGHT]).prod(1)).mean()),
        "others listed": float(p[:, RIGHT:].sum(1).mean()),
    }


def said(values: list[float]) -> str:
    """A mean with its 95 % interval."""
    own = mean(values)
    return f"{own.value:.1f} [{own.interval.low:.1f}, {own.interval.high:.1f}]"


def default(seeds: range) -> None:
    """Print the whole sets after each stage of the recipe as it is, and what each stage adds."""
    rows = []
    for seed in seeds:
        with TemporaryDirectory() as folder:
            _, summary = start(override(totrl(), [f"seed={seed}"]), Path(folder), LiveView(json=True))
        rows.append([100.0 * stage["accuracy_after"] for stage in summary["stages"]])
    columns = [list(own) for own in zip(*rows, strict=True)]
    gains = [[b - a for a, b in zip(x, y, strict=True)] for x, y in pairwise(columns)]
    names = [stage["name"] for stage in summary["stages"]]
    for name, own, gain in zip(names, columns, [[], *gains], strict=True):
        print(name, said(own), said(gain) if gain else "")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--default", action="store_true")
    given = parser.parse_args()
    seeds = range(given.seeds)
    if given.default:
        default(seeds)
        return
    table, columns = [], list[str]()
    for name, (tree_steps, need) in ARMS.items():
        found = [play(tree_steps, need, seed) for seed in seeds]
        columns = list(found[0])
        cells = []
        for column in columns:
            own = mean([one[column] for one in found])
            cells.append(f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]")
        table.append([name, *cells])
    print(json.dumps({"columns": ["", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
