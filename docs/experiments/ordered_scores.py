"""Does a judge that is rewarded for the order of its scores learn principles, and does it learn to say nothing?

A tabular judge has a softmax over the scores 1 to 5 for each principle (larger, smaller, even first), ten buckets of
size and parity of a number, and scores three numbers of an item independently. It may also reply with nothing, by a
probability of its own, 0.1 at the start. GRPO has groups of 8 and 16 items a step. Rewards are those of
`rewards/ranked_scores`, of which an empty reply gets 0, or as in the release an order reward of 1, the form being
weighed 0.25. Reported is the share of pairs in order on new items, of replies, of items that conflict (larger and
smaller), with the probability of an empty reply.

    python docs/experiments/ordered_scores.py --seeds 5
"""

import argparse
import json
from itertools import combinations

import numpy as np

from posttrain.components.tasks.ranked_numbers import PRINCIPLES, merit
from posttrain.grading.rankings import best_reward, order_reward
from posttrain.statistics.intervals import mean

STEPS, ITEMS, GROUP, RATE, WEIGHT, LARGEST = 200, 16, 8, 2.0, 0.25, 99
NAMES = ("a", "b", "c")


def drawn(rng: np.random.Generator, count: int) -> list[tuple[int, list[int], dict[str, float]]]:
    """Items: the principle, three numbers, gold scores by name."""
    found = []
    for _ in range(count):
        principle, numbers = int(rng.integers(3)), [int(x) for x in rng.choice(LARGEST, 3, replace=False) + 1]
        ranked = sorted(numbers, key=lambda x: merit(x, PRINCIPLES[principle]))
        found.append(
            (principle, numbers, {name: 1.0 + ranked.index(x) for name, x in zip(NAMES, numbers, strict=True)})
        )
    return found


def softmax(logits: np.ndarray) -> np.ndarray:
    """[..., K] probabilities."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


def cells(principle: int, numbers: list[int], with_principle: bool) -> tuple[np.ndarray, ...]:
    """Indices of the table for three numbers."""
    return np.full(3, principle if with_principle else 0), np.array(numbers) // 10, np.array(numbers) % 2


def trained(seed: int, kind: str, with_principle: bool = True) -> tuple[np.ndarray, float]:
    """The table, and the probability of an empty reply."""
    rng = np.random.default_rng(seed)
    table, empty = np.zeros((3, 10, 2, 5)), np.log(0.1 / 0.9)
    for _ in range(STEPS):
        slope, slope_empty = np.zeros_like(table), 0.0
        for principle, numbers, gold in drawn(rng, ITEMS):
            place = cells(principle, numbers, with_principle)
            chance, nothing = softmax(table[place]), 1 / (1 + np.exp(-empty))
            silent = rng.random(GROUP) < nothing
            scores = np.array([[rng.choice(5, p=row) for row in chance] for _ in range(GROUP)])
            reward = np.zeros(GROUP)
            for i in range(GROUP):
                if silent[i]:
                    reward[i] = 1 / (1 + WEIGHT) if kind == "released" else 0.0
                    continue
                said = {name: float(score) for name, score in zip(NAMES, scores[i], strict=True)}
                right = best_reward(said, gold) if kind == "best" else order_reward(said, gold)
                reward[i] = ((right or 0.0) + WEIGHT) / (1 + WEIGHT)
            advantage = (reward - reward.mean()) / (reward.std(ddof=1) + 1e-4)
            slope_empty += float((advantage * (silent - nothing)).mean())
            for i in np.flatnonzero(~silent):
                for j, cell in enumerate(zip(*place, strict=True)):
                    slope[cell] += advantage[i] / GROUP * (np.eye(5)[scores[i, j]] - chance[j])
        table += RATE * slope / ITEMS
        empty = float(np.clip(empty + RATE * slope_empty / ITEMS, -20, 20))
    return table, float(1 / (1 + np.exp(-empty)))


def one(seed: int, kind: str, with_principle: bool = True) -> tuple[float, float, float]:
    """Pairs in order on new items, ties half; the same of items with the principles larger and smaller; P(empty)."""
    table, empty = trained(seed, kind, with_principle)
    right, conflicting = [], []
    for principle, numbers, gold in drawn(np.random.default_rng(seed + 1000), 2000):
        expected = softmax(table[cells(principle, numbers, with_principle)]) @ np.arange(5)
        for i, j in combinations(range(3), 2):
            sign = np.sign(expected[i] - expected[j]) * np.sign(gold[NAMES[i]] - gold[NAMES[j]])
            right.append(0.5 + 0.5 * sign)
            conflicting += [right[-1]] if principle < 2 else []
    return float(np.mean(right)), float(np.mean(conflicting)), empty


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    arms = {
        "order of all pairs": ("order", True),
        "the best alone": ("best", True),
        "order, the principle not shown": ("order", False),
        "order, an empty reply rewarded as in the release": ("released", True),
    }
    table = []
    for name, arm in arms.items():
        results = np.array([one(seed, *arm) for seed in seeds])
        row = [name]
        for column in results.T:
            found = mean(column)
            row.append(f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]")
        table.append(row)
    columns = ["reward", "pairs in order", "of the principles larger and smaller", "probability of an empty reply"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
