"""Calibration of an overconfident judge by Platt's method and by isotonic regression, from 50, 200 and 1,000 labels.

The log-odds that an answer is right are from a normal distribution (standard deviation 1.5). The judge states 2.75
times as much and half a nat more. Both methods (`posttrain.statistics.logistic`) are fitted to labelled answers, and
measured on 20,000 others by the calibration error over ten equal bins.

    python docs/experiments/calibrations.py --seeds 40
"""

import argparse
import json

import numpy as np

from posttrain.statistics.calibration import calibration_error
from posttrain.statistics.intervals import mean
from posttrain.statistics.logistic import Array, isotonic, platt, sigmoid

FACTOR, OFFSET, SPREAD, OTHERS = 2.75, 0.5, 1.5, 20_000
LABELS = (50, 200, 1000)


def drawn(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """[N] stated log-odds, and whether each answer is right."""
    true_N = rng.normal(0.0, SPREAD, count)
    return FACTOR * true_N + OFFSET, rng.random(count) < sigmoid(true_N)


def one(seed: int) -> list[float]:
    """Errors as stated, then by Platt and by isotonic regression for each number of labels."""
    rng = np.random.default_rng([seed, 9])
    stated_N, right_N = drawn(OTHERS, rng)
    errors = [calibration_error(sigmoid(stated_N).tolist(), right_N.tolist())]
    for labels in LABELS:
        own_N, own_right_N = drawn(labels, rng)
        for fit in (platt, isotonic):
            chance_N = fit(own_N.tolist(), own_right_N.tolist()).chance(stated_N)
            errors.append(calibration_error(chance_N.tolist(), right_N.tolist()))
    return errors


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=40)
    errors_SE = np.array([one(seed) for seed in range(parser.parse_args().seeds)])
    found = [mean(errors_E) for errors_E in errors_SE.T]
    cells = [f"{f.value:.3f} [{f.interval.low:.3f}, {f.interval.high:.3f}]" for f in found]
    table = [["as stated", cells[0], cells[0], cells[0]], ["Platt", *cells[1::2]], ["isotonic", *cells[2::2]]]
    columns = ["calibration error", *(f"{labels:,} labels" for labels in LABELS)]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
