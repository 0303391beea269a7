"""Merits of items from comparisons by annotators of whom one has an offset, one answers by lot and one is reversed.

30 items with merits from a normal distribution (standard deviation 1.5 or 3) are compared 3,000 times by five
annotators of the family `annotators`: scales 1.2, 1 and .9 (the third with an offset of 2 for what is shown first),
spam, and one reversed. `posttrain.statistics.annotators` fits merits with each annotator's scale and offset, and plain
Bradley-Terry.

    python docs/experiments/planted_annotators.py --seeds 10
"""

import argparse
import json
import time
from random import Random

import numpy as np

from posttrain.components.annotators import Annotator, Shown
from posttrain.components.annotators.noise import Noise
from posttrain.components.annotators.position import Position
from posttrain.components.annotators.reversal import Reversal
from posttrain.components.annotators.several import Several
from posttrain.components.annotators.spam import Spam
from posttrain.statistics.annotators import Comparison, merits
from posttrain.statistics.intervals import mean

ITEMS, COMPARISONS = 30, 3000
SPREADS = (1.5, 3.0)
"""Of the merits: items that are close, and items of which plain Bradley-Terry orders four of five pairs rightly."""
SCALES, OFFSETS = np.array([1.2, 1.0, 0.9, 0.0, -1.0]), np.array([0.0, 0.0, 2.0, 0.0, 0.0])
PLANTED: tuple[Annotator, ...] = (
    Noise(spread=1 / 1.2),
    Noise(),
    Several(parts=(Position(offset=2 / 0.9), Noise(spread=1 / 0.9))),
    Spam(),
    Several(parts=(Noise(), Reversal())),
)


def tau(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's."""
    i, j = np.triu_indices(len(a), 1)
    return float(np.mean(np.sign(a[i] - a[j]) * np.sign(b[i] - b[j])))


def one(seed: int, spread: float) -> dict[str, float]:
    """The figures of a seed, by the merits' standard deviation; scales are in the unit of the first annotator's."""
    rng = Random(f"planted annotators:{seed}")
    true = np.array([rng.gauss(0.0, spread) for _ in range(ITEMS)])
    comparisons = []
    for _ in range(COMPARISONS):
        i, j = rng.sample(range(ITEMS), 2)
        a = rng.randrange(len(PLANTED))
        opinion = PLANTED[a].opinion(float(true[i] - true[j]), Shown(texts=("first", "second")), rng)
        comparisons.append(Comparison(i, j, annotator=a, first_wins=(opinion or 0.0) > 0))
    start = time.process_time()
    found = merits(comparisons, ITEMS, len(PLANTED))
    seconds = time.process_time() - start
    plain = merits(comparisons, ITEMS, len(PLANTED), scales=False, offsets=False)
    return {
        "Kendall's tau, with scales and offsets": tau(found.merit_I, true),
        "Kendall's tau, plain": tau(plain.merit_I, true),
        "largest error of a scale": float(np.abs(found.scale_A * SCALES[0] / found.scale_A[0] - SCALES).max()),
        "largest error of an offset": float(np.abs(found.offset_A - OFFSETS).max()),
        "error of the planted offset": float(np.abs(found.offset_A - OFFSETS)[2]),
        "seconds of the fit": seconds,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    results = {spread: [one(seed, spread) for seed in seeds] for spread in SPREADS}
    table = []
    for name in results[SPREADS[0]][0]:
        found = [mean(np.array([result[name] for result in results[spread]])) for spread in SPREADS]
        table.append([name, *(f"{f.value:.3f} [{f.interval.low:.3f}, {f.interval.high:.3f}]" for f in found)])
    columns = ["3,000 comparisons of 30 items", *(f"merits of standard deviation {spread:g}" for spread in SPREADS)]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
