"""At equal accuracy, does learning from failures leave more right answers alive than learning from successes?

A bandit of fifty arms, ten of them right, one pull a step, softmax policy, rate 0.1: the logits move by the weight of
the outcome times (one-hot - p). Weights of a right and a wrong pull: (1, 0) is PSR, (0, -1) NSR, (1, -1) REINFORCE
and (0.1, -1) W-REINFORCE. Reported is the effective number of right arms, exp of the entropy among them, when 80 %
and 95 % of the pulls are right, by the std of the logits at the start.

    python docs/experiments/right_arms.py --seeds 30
"""

import argparse
import json

import numpy as np

from posttrain.statistics.intervals import mean

ARMS, RIGHT, RATE, LEVELS = 50, 10, 0.1, (0.8, 0.95)
WEIGHTS = {"PSR": (1.0, 0.0), "NSR": (0.0, -1.0), "REINFORCE": (1.0, -1.0), "W-REINFORCE": (0.1, -1.0)}


def alive(weights: tuple[float, float], spread: float, seeds: int) -> np.ndarray:
    """[seeds, levels] effective number of right arms when each level of accuracy is first reached."""
    rng = np.random.Generator(np.random.Philox(key=0))
    logits = spread * rng.normal(size=(seeds, ARMS))
    found = np.full((seeds, len(LEVELS)), np.nan)
    while np.isnan(found).any():
        powers = np.exp(logits - logits.max(1, keepdims=True))
        chance = powers / powers.sum(1, keepdims=True)
        accuracy = chance[:, :RIGHT].sum(1)
        for place, level in enumerate(LEVELS):
            for seed in np.flatnonzero(np.isnan(found[:, place]) & (accuracy >= level)):
                among = chance[seed, :RIGHT] / accuracy[seed]
                found[seed, place] = np.exp(-(among * np.log(among)).sum())
        arm = (chance.cumsum(1) < rng.random((seeds, 1))).sum(1).clip(max=ARMS - 1)
        weight = np.where(arm < RIGHT, *weights)
        logits += RATE * weight[:, None] * (np.eye(ARMS)[arm] - chance)
    return found


def said(values: np.ndarray) -> str:
    """A mean with its 95 % interval."""
    found = mean(values)
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=30)
    seeds, spreads = parser.parse_args().seeds, (0.1, 0.25, 0.5, 1.0)
    table = []
    for name, weights in WEIGHTS.items():
        found = [alive(weights, spread, seeds) for spread in spreads]
        for place, level in enumerate(LEVELS):
            table.append([f"{name}, {level:.0%} right", *(said(values[:, place]) for values in found)])
    columns = ["right arms alive", *(f"std {spread:g} at the start" for spread in spreads)]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
