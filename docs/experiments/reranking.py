"""Does the overlap with a teacher's order leave fewer groups without a gradient than NDCG alone, and rank better?

A tabular reranker draws orders of six passages one after another (Plackett-Luce) from logits of five buckets of a noisy
score: relevance plus a normal variable. GRPO has groups of 8 orders, 8 queries a step and 300 steps. Rewards are those
of `rewards/reranked`: NDCG@10 alone, or with 0.2 recall@10 and 0.1 average overlap. The teacher sees a score with half
of the noise. Reported are the share of groups of equal rewards over all steps and the NDCG@10 of the order by logits on
new queries.

    python docs/experiments/reranking.py --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.grading.ranked_lists import average_overlap, ndcg, recall
from posttrain.statistics.intervals import mean

STEPS, QUERIES, GROUP, PASSAGES, BUCKETS, RATE, NOISE = 300, 8, 8, 6, 5, 0.3, 1.0


def query(rng: np.random.Generator, relevant: int) -> tuple[np.ndarray, set[int], list[int]]:
    """Buckets of the passages' scores, relevant ones, and the teacher's order, numbers from 1."""
    marked = rng.permutation(PASSAGES)[:relevant]
    truth = np.isin(np.arange(PASSAGES), marked).astype(float)
    bucket = np.digitize(truth + NOISE * rng.normal(size=PASSAGES), [-0.5, 0.25, 0.75, 1.5])
    teacher = np.argsort(-(truth + NOISE / 2 * rng.normal(size=PASSAGES)), kind="stable") + 1
    return bucket, {int(i) + 1 for i in marked}, teacher.tolist()


def drawn(rng: np.random.Generator, logits: np.ndarray) -> np.ndarray:
    """[GROUP, PASSAGES] orders of places from 0, by the Gumbel trick."""
    return np.argsort(-(logits + rng.gumbel(size=(GROUP, PASSAGES))), axis=1)


def slope(order: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """[PASSAGES] gradient of the log-probability of an order in the logits."""
    found, left = np.zeros(PASSAGES), list(order)
    for place in order:
        chance = np.exp(logits[left] - logits[left].max())
        found[left] -= chance / chance.sum()
        found[place] += 1.0
        left.remove(place)
    return found


def reward(order: np.ndarray, relevant: set[int], teacher: list[int], full: bool) -> float:
    """The reward of an order."""
    own = [int(place) + 1 for place in order]
    gain = ndcg(own, relevant, 10)
    return gain + 0.2 * recall(own, relevant, 10) + 0.1 * average_overlap(own, teacher) if full else gain


def one(seed: int, relevant: int, full: bool) -> tuple[float, float]:
    """Share of groups of equal rewards, and NDCG@10 on new queries."""
    rng, table, ties = np.random.default_rng([seed, relevant]), np.zeros(BUCKETS), 0
    for _ in range(STEPS):
        total = np.zeros(BUCKETS)
        for _ in range(QUERIES):
            bucket, marked, teacher = query(rng, relevant)
            logits = table[bucket]
            orders = drawn(rng, logits)
            values = np.array([reward(order, marked, teacher, full) for order in orders])
            ties += np.ptp(values) < 1e-12
            if np.ptp(values) < 1e-12:
                continue
            advantage = (values - values.mean()) / (values.std(ddof=1) + 1e-6)
            for order, own in zip(orders, advantage, strict=True):
                np.add.at(total, bucket, own / GROUP * slope(order, logits))
        table += RATE * total / QUERIES
    fresh, gains = np.random.default_rng([seed, relevant, 1]), []
    for _ in range(1000):
        bucket, marked, _ = query(fresh, relevant)
        order = np.argsort(-(table[bucket] + 1e-6 * fresh.random(PASSAGES)))
        gains.append(ndcg([int(place) + 1 for place in order], marked, 10))
    return ties / (STEPS * QUERIES), float(np.mean(gains))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    for relevant in (1, 3):
        both = {full: np.array([one(seed, relevant, full) for seed in seeds]) for full in (False, True)}
        for full, found in both.items():
            row = [str(relevant), "with recall and overlap" if full else "NDCG@10 alone"]
            for values in found.T:
                own = mean(values)
                row.append(f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]")
            table.append(row)
        own = mean(both[True][:, 1] - both[False][:, 1])
        table.append(
            [str(relevant), "difference", "", f"{own.value:+.4f} [{own.interval.low:+.4f}, {own.interval.high:+.4f}]"]
        )
    columns = ["relevant passages", "reward", "groups of equal rewards", "NDCG@10 on new queries"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
