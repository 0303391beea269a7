"""Does a judge learn more when reinforcement gets only the items that it answered wrongly?

Which of two lists of eight numbers has the larger sum: the judge is logistic in the differences of the numbers, and
learns in stages by the same rate. The cold start imitates 40 labels. Rejection sampling imitates its own right
answers on a pool of 2,000 pairs (one greedy answer each). GRPO (groups of 8, a KL of 0.04 to its start) then has 20 or
300 steps of 8 pairs, from the wrong ones of the pool or from all of it, so that both have the same number of samples.
Reported are the accuracy on all pairs and on hard ones (sums that differ by at most 3) and the share of groups without
an advantage.

    python docs/experiments/routed_judge.py --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.statistics.intervals import mean

LENGTH, POOL, COLD, PROMPTS, GROUP, RATE, KL = 8, 2000, 40, 8, 8, 0.3, 0.04
BUDGETS = (20, 300)


def pairs(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[N, D] differences in units of 3, [N] labels of 1 and 0, [N] whether a pair is hard."""
    difference = rng.integers(-9, 10, size=(2 * size, LENGTH))
    difference = difference[difference.sum(1) != 0][:size]
    return difference / 3.0, (difference.sum(1) > 0).astype(float), np.abs(difference.sum(1)) <= 3


def chance(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """[N] probability of the answer 1."""
    return 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))


def imitate(weights: np.ndarray, x: np.ndarray, label: np.ndarray, steps: int) -> np.ndarray:
    """The weights after some full steps of cross-entropy."""
    for _ in range(steps):
        weights = weights + RATE * (label - chance(weights, x)) @ x / len(x)
    return weights


def reinforce(
    weights: np.ndarray, x: np.ndarray, label: np.ndarray, steps: int, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """The weights after GRPO, and the share of groups without an advantage."""
    start, idle = weights, 0.0
    for _ in range(steps):
        place = rng.integers(len(x), size=PROMPTS)
        p = chance(weights, x[place])
        said = rng.random((GROUP, PROMPTS)) < p
        reward = (said == label[place].astype(bool)).astype(float)
        std = reward.std(0, ddof=1)
        idle += float((std == 0).mean()) / steps
        advantage = (reward - reward.mean(0)) / (std + 1e-4)
        slope = (advantage * (said - p)).mean(0)
        apart = (x[place] @ weights - x[place] @ start).clip(-30, 30)  # difference of the log odds
        slope -= KL * p * (1 - p) * apart
        weights = weights + RATE * slope @ x[place] / PROMPTS
    return weights, idle


def one(seed: int) -> dict[str, tuple[float, float, float]]:
    """By chain of stages, accuracy on all and on hard pairs, and the share of idle groups."""
    rng = np.random.default_rng(seed)
    test, test_label, hard = pairs(np.random.default_rng(999), 20_000)
    x, label, _ = pairs(rng, POOL)

    def measured(weights: np.ndarray, idle: float = np.nan) -> tuple[float, float, float]:
        right = (chance(weights, test) > 0.5) == test_label.astype(bool)
        return float(right.mean()), float(right[hard].mean()), idle

    cold = imitate(np.zeros(LENGTH), x[:COLD], label[:COLD], 20)
    own = (chance(cold, x) > 0.5).astype(float)
    right = own == label
    rejected = imitate(cold, x[right], label[right], 20)
    found = {"cold start": measured(cold), "cold start, rejection sampling": measured(rejected)}
    for steps in BUDGETS:
        wrong = reinforce(rejected, x[~right], label[~right], steps, rng)
        found[f"then GRPO on the wrong items, {steps} steps"] = measured(*wrong)
        found[f"then GRPO on all items, {steps} steps"] = measured(*reinforce(rejected, x, label, steps, rng))
        found[f"cold start, GRPO on all items, {steps} steps"] = measured(*reinforce(cold, x, label, steps, rng))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    found = [one(seed) for seed in range(parser.parse_args().seeds)]
    table = []
    for name in found[0]:
        row = [name]
        for place in range(3):
            values = np.array([result[name][place] for result in found])
            known = None if np.isnan(values).any() else mean(values)
            said = "-" if known is None else f"{known.value:.3f} [{known.interval.low:.3f}, {known.interval.high:.3f}]"
            row.append(said)
        table.append(row)
    columns = ["stages", "accuracy", "accuracy on hard pairs", "groups without advantage"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
