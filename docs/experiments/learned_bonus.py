"""Does a misleading bonus do harm to a language model, with fixed weights and with weights that are learned?

Sheet of row 188 (BARFI, arXiv:2310.19007). The default run of `barfi`: sums, with a bonus for answers that end in 7.
The rows: no bonus, the bonus with a fixed weight of 0.3, which is the default's start, or of 3, and weights that are
learned from 0.3. Reported is the share of 200 held-out sums that are right after `--steps` steps (33 by default, which
take 70 s a run on a core), the difference from the run of the same seed without the bonus, and the weights at the end,
over seeds with a 95 % interval.

    python docs/experiments/learned_bonus.py --seeds 5 --steps 12
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from posttrain import run
from posttrain.methods.rewards.barfi import barfi
from posttrain.recipes.overrides import override
from posttrain.statistics.intervals import mean

ROWS = (
    ("no bonus", 0.0, False),
    ("fixed at 0.3", 0.3, False),
    ("fixed at 3", 3.0, False),
    ("learned from 0.3", 0.3, True),
)


def one(seed: int, weight: float, learned: bool, steps: int, folder: Path) -> tuple[float, float, float]:
    """Accuracy in percent, and both weights at the end."""
    weights = f"outer.weights={{correct: 1.0, bonus: {weight}}}"
    recipe = override(
        barfi(), [f"seed={seed}", weights, f"outer.learned={str(learned).lower()}", f"outer.steps={steps}"]
    )
    done = run(recipe, out=folder / f"{seed}-{weight}-{learned}", quiet=True)
    last = [json.loads(line) for line in (done.folder / "metrics.jsonl").read_text().splitlines()]
    own = next(line for line in reversed(last) if "weight/bonus" in line)
    right = json.loads((done.folder / "summary.json").read_text())["accuracy_after"]
    return 100 * right, own["weight/correct"], own["weight/bonus"]


def shown(values: np.ndarray, digits: int = 1) -> str:
    """A mean with its interval."""
    own = mean(values)
    return f"{own.value:.{digits}f} [{own.interval.low:.{digits}f}, {own.interval.high:.{digits}f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=33)
    given, table, first = parser.parse_args(), [], np.zeros(0)
    with tempfile.TemporaryDirectory() as folder:
        for name, weight, learned in ROWS:
            found = np.array([one(seed, weight, learned, given.steps, Path(folder)) for seed in range(given.seeds)])
            first = first if len(first) else found[:, 0]
            table.append([name, shown(found[:, 0]), shown(found[:, 0] - first), *(shown(w, 2) for w in found.T[1:])])
            print(json.dumps([name, found[:, 0].tolist()]), flush=True)
    columns = ["bonus", "right, %", "points more than without", "weight of right", "weight of the bonus"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
