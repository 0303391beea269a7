"""Criteria in the prompts of a part of each group: what is learned for the bare prompt? Sheet of row 291, experiments.

A table: 16 topics with six facts each and one thing to avoid. A fact is written with probability sigmoid(theta), and
with sigmoid(theta + 4) where it is shown; the thing to avoid with sigmoid(theta), shown sigmoid(theta - 4). theta
begins at -1 for two of the facts and at -6 for four, of which a group of 8 without a scaffold nearly never has one; at
-1 for the thing to avoid. Points are 3, 2, 2, 1, 1, 1 and -1. Each step samples every topic 8 times, and the gradient
of group-normalized rewards is that of the bare prompt's log-probabilities, at a ratio of 1. The reward of the bare
prompt is exact.

    grpo        no scaffold
    ruscarl     all to none within a group, decaying at 20 % of the steps
    constant    all to none within a group, without decay
    all         all criteria for all rollouts, decaying at 20 %

    python docs/experiments/scaffolds.py --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.components.rollouts.scaffolded import Scaffolded
from posttrain.statistics.intervals import mean

POINTS = np.array([3.0, 2.0, 2.0, 1.0, 1.0, 1.0, -1.0])
START = np.array([-6.0, -1.0, -6.0, -6.0, -1.0, -6.0, -1.0])
TOPICS, N, STEPS, RATE, FOLLOWS = 16, 8, 200, 0.5, 4.0
ARMS = {
    "grpo": Scaffolded(n=N, within="none"),
    "ruscarl": Scaffolded(n=N),
    "constant": Scaffolded(n=N, strength=1.0),
    "all": Scaffolded(n=N, within="all"),
}


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def play(rollout: Scaffolded, seed: int) -> dict[str, float]:
    """The reward of bare prompts at a few places, and what groups are like at the start."""
    rng = np.random.default_rng([seed, 1])
    theta = np.tile(START, (TOPICS, 1)) + rng.normal(0.0, 0.3, (TOPICS, len(START)))
    boost = np.where(POINTS > 0, FOLLOWS, -FOLLOWS)
    best, spread, kept = [], [], {}
    for step in range(STEPS):
        now = rollout.at(step / STEPS)
        shown = np.zeros((TOPICS, N, len(POINTS)))
        for topic in range(TOPICS):
            for i in range(N):
                count = round(len(POINTS) * now.ratio(i))
                shown[topic, i, rng.permutation(len(POINTS))[:count]] = 1.0
        p = sigmoid(theta)
        written = rng.random(shown.shape) < sigmoid(theta[:, None] + shown * boost)
        reward = written @ POINTS / POINTS[POINTS > 0].sum()
        std = reward.std(1, ddof=1, keepdims=True)
        advantage = np.where(std > 0, (reward - reward.mean(1, keepdims=True)) / (std + 1e-6), 0.0)
        theta = theta + RATE * (advantage[:, :, None] * (written - p[:, None])).mean(1) * N / 4
        if step < STEPS // 10:
            best.append(reward.max(1).mean())
            spread.append(reward.var(1, ddof=1).mean())
        for share in (0.2, 0.5, 1.0):
            if step + 1 == round(share * STEPS):
                kept[f"bare, {share:.0%} of the steps"] = float(sigmoid(theta).mean(0) @ POINTS / POINTS[:6].sum())
    return {"best of 8, first tenth": float(np.mean(best)), "variance in a group": float(np.mean(spread)), **kept}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table, columns = [], list[str]()
    for name, rollout in ARMS.items():
        found = [play(rollout, seed) for seed in seeds]
        columns = list(found[0])
        cells = []
        for column in columns:
            own = mean([one[column] for one in found])
            cells.append(f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]")
        table.append([name, *cells])
    print(json.dumps({"columns": ["", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
