"""Verifier calls with a chosen set of answers, and what a bonus for differing states keeps. Sheet of row 105.

calls   a pool of 512 answers in ten clusters of 64 numbers: a wrong one with 90 % of them, a correct one with 1 %
(five), the rest evenly over eight more. A state is its cluster's mean, of standard deviation 1, plus noise of
.1. Calls of a verifier until a correct answer, in the order of the coreset and in random order.
modes   a table of 24 answers: four correct ones, in modes that are likely in the ratio 4 : 3 : 2 : 1, and 20 wrong
ones; an answer's state is its own vector of 16 numbers plus noise of .01. 300 steps of 16 groups of 8 with
group-normalized rewards, with and without the bonus: pass@1, pass@32 for 1,000 tasks that each accept one of
the four modes (mean over the modes), and the number of modes with at least 5 %.

python docs/experiments/coresets.py --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.statistics.elliptical import coreset, leverage, random_calls
from posttrain.statistics.intervals import mean

POOL, RIGHT, WIDTH = 512, 5, 64


def calls(seed: int, pools: int = 20) -> dict[str, float]:
    """Mean calls over a few pools."""
    rng = np.random.default_rng([seed, 1])
    found = []
    for _ in range(pools):
        cluster = np.concatenate([np.zeros(461, int), np.full(RIGHT, 1), 2 + np.arange(POOL - 461 - RIGHT) % 8])
        states = rng.normal(size=(10, WIDTH))[cluster] + rng.normal(0.0, 0.1, (POOL, WIDTH))
        order = coreset(states, POOL, first=int(rng.integers(POOL)))
        found.append(1 + next(place for place, i in enumerate(order) if cluster[i] == 1))
    return {"calls, coreset": float(np.mean(found)), "calls, random": random_calls(RIGHT, POOL)}


def modes(seed: int, beta: float) -> dict[str, float]:
    """A table trained with this bonus."""
    rng = np.random.default_rng([seed, 2])
    weight = np.concatenate([0.2 * np.array([4.0, 3.0, 2.0, 1.0]) / 10.0, np.full(20, 0.8 / 20)])
    logits, state = np.log(weight), rng.normal(size=(24, 16))
    for _ in range(300):
        p = np.exp(logits - logits.max())
        p /= p.sum()
        step = np.zeros(24)
        for _ in range(16):
            drawn = rng.choice(24, 8, p=p)
            reward = (drawn < 4).astype(float)
            if reward.any():
                own = state[drawn] + rng.normal(0.0, 0.01, (8, 16))
                reward = reward + beta * leverage(own, 0.01)
            std = reward.std(ddof=1)
            advantage = (reward - reward.mean()) / (std + 1e-6) if std > 0 else np.zeros(8)
            pushed = np.bincount(drawn, weights=advantage / 8, minlength=24)
            step += (pushed - p * pushed.sum()) / 16
        logits = logits + 0.2 * step
    p = np.exp(logits - logits.max())
    p /= p.sum()
    return {
        "pass@1": float(p[:4].sum()),
        "pass@32 of one mode": float((1.0 - (1.0 - p[:4]) ** 32).mean()),
        "modes": float((p[:4] >= 0.05).sum()),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    found: dict[str, list[float]] = {}
    for seed in seeds:
        for name, value in calls(seed).items():
            found.setdefault(name, []).append(value)
        for beta in (0.0, 0.01, 0.1):
            for name, value in modes(seed, beta).items():
                found.setdefault(f"beta {beta:g}, {name}", []).append(value)
    table = []
    for name, values in found.items():
        own = mean(values)
        table.append([name, f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]"])
    print(json.dumps({"columns": ["", "mean and 95 % interval"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
