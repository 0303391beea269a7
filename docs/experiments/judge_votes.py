"""What do votes of a judge add, by sums, majorities and a meta model, and what does a strict reward teach about ties?

First a simulated judge of four candidates whose quality is 0, 1, 2 and 3: points are quality and noise (std 2), rounded
and held in 1 to 10 about 5; 10 % of its replies have no scores. A meta model scores replies by whether their best
candidate is right, with noise so that its AUC is about .8, and keeps half. Reported is how often the winner is the best
candidate, ties half, over 400 items a seed, for 1 to 32 replies (`search/score_votes`).

Then a tabular judge: a softmax over points 1 to 5 for each of five sizes of an item; of two sizes the larger is better.
GRPO in groups of 4 rewards it for 300 steps by `rewards/strict_best`, or by the same but with ties accepted. Reported
are pairs of sizes with the larger one strictly first, and ties, before and after.

    python docs/experiments/judge_votes.py --seeds 5
"""

import argparse
import json
from functools import cache

import numpy as np

from posttrain.components.rewards.strict_best import StrictBest
from posttrain.components.search.score_votes import kept_by, points_of
from posttrain.statistics.intervals import mean
from posttrain.types import Segment, Task, Trajectory

ITEMS, NOISE, FAILS, META = 400, 2.0, 0.1, 1.2
NAMES = ("a", "b", "c", "d")
SIZES = 5


def replies(rng: np.random.Generator, count: int) -> tuple[list[dict[str, float]], list[float]]:
    """Scores of the candidates in each reply, of which d is the best, and the meta model's scores."""
    point_RC = np.clip(np.round(4 + np.arange(4) + NOISE * rng.normal(size=(count, 4))), 1, 10)
    right_R = (point_RC[:, 3:] > point_RC[:, :3]).all(1)
    meta = right_R * META + rng.normal(size=count)
    fails_R = rng.random(count) < FAILS
    scores = [
        {} if bad else dict(zip(NAMES, map(float, row), strict=True))
        for row, bad in zip(point_RC, fails_R, strict=True)
    ]
    return scores, [float(x) for x in meta]


def won(points: dict[str, float]) -> float:
    """1 where d alone wins, its share of a tie otherwise."""
    most = max(points.values(), default=None)
    winners = [name for name, x in points.items() if x == most]
    return float("d" in winners) / len(winners) if winners else 0.25


def accuracies(seed: int, k: int) -> tuple[float, float, float]:
    """Of sums, majorities, and sums of the half that the meta model keeps."""
    rng = np.random.default_rng([seed, k])
    found = []
    for _ in range(ITEMS):
        scores, meta = replies(rng, k)
        kept = [scores[i] for i in kept_by(meta, scores, -(-k // 2))]
        found.append([won(points_of(scores, "sum")), won(points_of(scores, "majority")), won(points_of(kept, "sum"))])
    return tuple(np.mean(found, 0))  # type: ignore[return-value]


def auc(seed: int) -> float:
    """Of the meta model, for right and wrong replies."""
    scores, meta = replies(np.random.default_rng(seed), 4000)
    right = [m for own, m in zip(scores, meta, strict=True) if own and own["d"] > max(own[n] for n in NAMES[:3])]
    wrong = [m for own, m in zip(scores, meta, strict=True) if own and own["d"] <= max(own[n] for n in NAMES[:3])]
    return float(np.mean(np.array(right)[:, None] > np.array(wrong)))


def taught(seed: int, steps: int, ties_pass: bool = False) -> tuple[float, float]:
    """Pairs with the larger size strictly first, and ties."""
    rng, table = np.random.default_rng(seed), np.zeros((SIZES, SIZES))
    for _ in range(steps):
        slope = np.zeros_like(table)
        for _ in range(16):
            pair = np.sort(rng.choice(SIZES, 2, replace=False))
            chance = softmax(table[pair])
            points = np.array([[rng.choice(SIZES, p=row) for row in chance] for _ in range(4)])
            values = np.array([strict(*map(int, row)) for row in points])
            values = np.where(ties_pass & (points[:, 0] == points[:, 1]), 1.0, values)
            advantage = (values - values.mean()) / (values.std(ddof=1) + 1e-4)
            for j, size in enumerate(pair):
                slope[size] += (advantage[:, None] * (np.eye(SIZES)[points[:, j]] - chance[j])).mean(0)
        table += 2.0 * slope / 16
    chance = softmax(table)
    pairs = [(chance[low], chance[high]) for low in range(SIZES) for high in range(low + 1, SIZES)]
    first = [float(np.triu(np.outer(a, b), 1).sum()) for a, b in pairs]
    return float(np.mean(first)), float(np.mean([a @ b for a, b in pairs]))


def softmax(logits: np.ndarray) -> np.ndarray:
    """[..., K] probabilities."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


@cache
def strict(low: int, high: int) -> float:
    """The reward of points for the smaller and the larger of two sizes."""
    text = json.dumps({"scores": {"a": low + 1, "b": high + 1}})
    segment = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text)
    task = Task(key="", prompt="", fields={"gold": {"a": 1, "b": 2}})
    return StrictBest()._score(Trajectory(task=task, segments=(segment,), stop_reason="stop")).value


def shown(values: np.ndarray) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    for k in (1, 2, 4, 8, 16, 32):
        results = np.array([accuracies(seed, k) for seed in seeds])
        table.append([f"votes of {k}", *(shown(column) for column in results.T)])
    for name, arm in {"before": (0, False), "strict reward": (300, False), "ties accepted": (300, True)}.items():
        results = np.array([taught(seed, *arm) for seed in seeds])
        table.append([f"tabular judge, {name}: strict, ties", *(shown(column) for column in results.T), ""])
    said = f"AUC of the meta model {shown(np.array([auc(seed) for seed in seeds]))}"
    print(json.dumps({"said": said, "columns": ["", "sum", "majority", "meta keeps half"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
