"""Does agreement of two rankers clean the demonstrations that guide one of them? Sheet of row 263 (arXiv:2310.16271).

Four answers of a task have hidden scores from a normal distribution. The black box sees them with noise, which falls
from .8 to .2 with the share of its six demonstrations' pairs that are in the order of the scores, and rises where they
are not (1.1 if all are wrong). The policy sees them with noise 1.2, which falls by a hundredth with every task whose
black order has more right pairs than wrong ones, and rises otherwise. 30 cycles of 8 tasks; of each cycle one
demonstration may enter, beside two static ones that are right.

    static        the two static ones alone
    all           the black box's order of the first task
    agreement     the longest order in which both agree, of the first task with two or more

With `bias` half of what both see is a preference of their own for one kind of answer, the same for both.

    python docs/experiments/cycles.py --seeds 20
"""

import argparse
import json
from itertools import combinations

import numpy as np

from posttrain.components.rewards.ranked import agreement
from posttrain.statistics.intervals import mean

K, CYCLES, TASKS, MOST = 4, 30, 8, 4


def right_share(order: list[int], score: np.ndarray) -> float:
    """Share of the pairs of an order that are in the order of the scores."""
    return float(np.mean([score[a] > score[b] for a, b in combinations(order, 2)]))


def play(arm: str, biased: bool, seed: int) -> dict[str, float]:
    """All cycles."""
    rng = np.random.default_rng([seed, 1])
    dynamic, policy_noise = list[float](), 1.2
    agreed, black, white = list[float](), list[float](), list[float]()
    for _ in range(CYCLES):
        known = [1.0, 1.0, *dynamic]
        noise = np.interp(float(np.mean(known)) * len(known) / (2 + MOST), [0.0, 1.0], [1.1, 0.2])
        fresh = list[float]()
        for _ in range(TASKS):
            score = rng.normal(size=K)
            seen = 0.5 * score + 0.5 * rng.normal(size=K) if biased else score
            first = [int(i) for i in np.argsort(-(seen + rng.normal(0.0, noise, K)))]
            own = [int(i) for i in np.argsort(-(seen + rng.normal(0.0, policy_noise, K)))]
            both = agreement(first, own)
            agreed.append(len(both) / K)
            black.append(right_share(first, score))
            white.append(right_share(own, score))
            if arm == "all" or (arm == "agreement" and len(both) > 1):
                fresh.append(right_share(first if arm == "all" else both, score))
            policy_noise = max(0.1, policy_noise - 0.01 * np.sign(black[-1] - 0.5))
        dynamic = [*dynamic, *fresh[:1]][-MOST:]
    last = CYCLES * TASKS // 3
    return {
        "right pairs among demonstrations": float(np.mean([1.0, 1.0, *dynamic])),
        "black box": float(np.mean(black[-last:])),
        "policy": float(np.mean(white[-last:])),
        "agreement": float(np.mean(agreed[-last:])),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    table, columns = [], list[str]()
    for biased in (False, True):
        for arm in ("static", "all", "agreement"):
            found = [play(arm, biased, seed) for seed in seeds]
            columns = list(found[0])
            cells = []
            for column in columns:
                own = mean([one[column] for one in found])
                cells.append(f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]")
            table.append([f"{arm}, bias" if biased else arm, *cells])
    print(json.dumps({"columns": ["demonstrations", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
