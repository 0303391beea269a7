"""Rounds of self-training at fixed and at searched temperatures. Sheet of row 194 (arXiv:2412.17256), experiments.

A table: 200 queries with 20 texts each, four of them correct, one of which is likely at first; logits from a normal
distribution of standard deviation 2, the correct ones 1 lower. A verifier is wrong about a text in one case of ten, the
same text in the same way; a step score in [0, 1] is added, a fifth of it for correct texts on average higher by .5.
Nine rounds: 16 rollouts of each query at a temperature, texts above a threshold (at most 4 of a query), 10 steps of
gradient ascent on their mean log-probability.

    T 0.5, T 1.0     a fixed temperature, the threshold searched
    balance          temperature and threshold with the highest mean of min(n' / n*, 1) n' / n, n* = 4
    precision        those with the highest n' / n

Reported by the truth: temperature in the first and the last round, distinct correct texts selected of a query, accuracy
of a rollout at temperature 1, and pass@32, exact.

    python docs/experiments/balanced_rounds.py --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.components.selections._balance import CAP, THRESHOLDS, Balance, Text, best, picked
from posttrain.statistics.intervals import mean

QUERIES, TEXTS, ROLLOUTS, ROUNDS, WANTED, MOST = 200, 20, 16, 9, 4, 4
GRID = tuple(round(0.5 + 0.1 * i, 1) for i in range(8))
ARMS = ("T 0.5", "T 1.0", "balance", "precision")


def probabilities(logits: np.ndarray, temperature: float) -> np.ndarray:
    """[queries, texts] softmax."""
    x = logits / temperature
    p = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(p / p.sum(1, keepdims=True))


def pools_of(
    p: np.ndarray, score: np.ndarray, accepted: np.ndarray, queries: int, rng: np.random.Generator
) -> list[list[Text]]:
    """Distinct sampled texts of each query with their scores."""
    drawn = [np.unique(rng.choice(TEXTS, ROLLOUTS, p=p[q])) for q in range(queries)]
    return [[Text(text=str(t), score=float(score[q, t]), right=bool(accepted[q, t])) for t in own]
            for q, own in enumerate(drawn)]  # fmt: skip


def precise(pools: list[list[Text]]) -> Balance:
    """The threshold with the highest n' / n."""
    found = []
    for threshold in THRESHOLDS[::5]:
        kept = [own for own in (picked(texts, threshold, CAP) for texts in pools) if own]
        shares = [sum(t.right for t in own) / len(own) for own in kept]
        value = float(np.mean(shares)) if shares else -1.0
        found.append(Balance(threshold=threshold, score=value, most=CAP, texts=0))
    return max(found, key=lambda one: one.score)


def play(arm: str, seed: int) -> dict[str, float]:
    """Nine rounds."""
    rng = np.random.default_rng([seed, 1])
    logits = rng.normal(0.0, 2.0, (QUERIES, TEXTS))
    correct = np.zeros((QUERIES, TEXTS), bool)
    correct[:, :4] = True
    logits[:, :4] -= 1.0
    accepted = correct ^ (rng.random(correct.shape) < 0.1)
    score = accepted + np.clip(rng.normal(0.25, 0.15, correct.shape) + 0.5 * correct, 0.0, 1.0) / 5
    temperatures, selected = [], 0.0
    for _ in range(ROUNDS):
        tried = GRID if arm in ("balance", "precision") else (float(arm.removeprefix("T ")),)
        found: list[tuple[float, float, Balance]] = []
        for temperature in tried:
            pools = pools_of(probabilities(logits, temperature), score, accepted, QUERIES // 4, rng)
            own = precise(pools) if arm == "precision" else best(pools, target=MOST * len(pools), wanted=WANTED)
            found.append((own.score, temperature, own))
        _, temperature, _ = max(found, key=lambda one: one[0])
        temperatures.append(temperature)
        pools = pools_of(probabilities(logits, temperature), score, accepted, QUERIES, rng)
        own = precise(pools) if arm == "precision" else best(pools, target=MOST * len(pools), wanted=WANTED)
        kept = [picked(texts, own.threshold, MOST) for texts in pools]
        target = np.zeros((QUERIES, TEXTS))
        for q, texts in enumerate(kept):
            target[q, [int(t.text) for t in texts]] = 1.0 / max(len(texts), 1)
        some = target.sum(1, keepdims=True)
        for _ in range(10):
            logits = logits + 0.3 * (target - some * probabilities(logits, 1.0))
        selected = float(np.mean([sum(correct[q, int(t.text)] for t in texts) for q, texts in enumerate(kept)]))
    right = (probabilities(logits, 1.0) * correct).sum(1)
    return {
        "temperature, first round": temperatures[0],
        "temperature, last round": temperatures[-1],
        "distinct correct texts, last round": selected,
        "accuracy": float(right.mean()),
        "pass@32": float((1.0 - (1.0 - right) ** 32).mean()),
        "entropy": float(-(probabilities(logits, 1.0) * np.log(probabilities(logits, 1.0) + 1e-300)).sum(1).mean()),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table, columns = [], list[str]()
    for arm in ARMS:
        found = [play(arm, seed) for seed in seeds]
        columns = list(found[0])
        cells = []
        for column in columns:
            own = mean([one[column] for one in found])
            cells.append(f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]")
        table.append([arm, *cells])
    print(json.dumps({"columns": ["", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
