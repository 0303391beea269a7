"""Does a reward model that sees a reference distinguish policies that it was not trained on?

Policies are distributions over eight letters (`tasks/policies`). A reward is linear in the counts of the candidate's
letters, and with a reference also in the products of both texts' counts, as centred shares: a bilinear head. It is
trained by Bradley and Terry on triples of six policies, and tested on triples of two others. Then 10, 50 or 200 ranked
pairs of another kind are learned from, by the gradient from zero and from the triples: the reference is one text of a
policy, and the preferred of two mixtures of policies is the one with more of it.

    python docs/experiments/letter_policies.py --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.components.tasks.policies import LETTERS, Policies
from posttrain.statistics.intervals import mean
from posttrain.types import Task

TRIPLES, TEST, RATE, STEPS, DECAY = 2000, 1000, 2.0, 400, 1e-4
RANKED = (10, 50, 200)
K = len(LETTERS)


def shares(text: str) -> np.ndarray:
    """[K] share of each letter less that of an even text."""
    return np.array([text.count(letter) / len(text) - 1 / K for letter in LETTERS])


def features(reference: np.ndarray, candidate: np.ndarray, with_reference: bool) -> np.ndarray:
    """What the head reads."""
    return np.concatenate([np.outer(reference, candidate).ravel(), candidate]) if with_reference else candidate


def pairs(tasks: list[Task], with_reference: bool) -> np.ndarray:
    """[N, D] features of the chosen candidate less those of the rejected one."""
    rows = []
    for task in tasks:
        for pair in task.preferences:
            texts = (shares(str(task.answer)), shares(pair.chosen), shares(pair.rejected))
            rows.append(features(texts[0], texts[1], with_reference) - features(texts[0], texts[2], with_reference))
    return np.array(rows)


def fit(x: np.ndarray, steps: int, start: np.ndarray | None = None, rate: float = RATE) -> np.ndarray:
    """Weights after full steps on -log sigmoid of the margin."""
    weights = np.zeros(x.shape[1]) if start is None else start.copy()
    for _ in range(steps):
        margin = np.clip(x @ weights, -30, 30)
        weights += rate * ((1 / (1 + np.exp(margin))) @ x / len(x) * 50 - DECAY * weights)
    return weights


def right(x: np.ndarray, weights: np.ndarray) -> float:
    """Share of pairs with a positive margin, ties half."""
    margin = x @ weights
    return float((margin > 0).mean() + 0.5 * (margin == 0).mean())


def ranked(seed: int, count: int, source: Policies) -> np.ndarray:
    """[N, D] pairs of mixtures of two policies, the one with more of the reference's policy preferred."""
    rng = np.random.default_rng([seed, count])
    weights = np.array([source.weights(policy) for policy in range(source.policies)])
    rows = []
    while len(rows) < count:
        own, other = rng.choice(source.policies, 2, replace=False)
        more, less = sorted(rng.random(2))[::-1]
        draws = [rng.choice(K, 16, p=m * weights[own] + (1 - m) * weights[other]) for m in (1.0, more, less)]
        texts = ["".join(LETTERS[i] for i in draw) for draw in draws]
        reference, chosen, rejected = map(shares, texts)
        rows.append(features(reference, chosen, True) - features(reference, rejected, True))
    return np.array(rows)


def one(seed: int) -> dict[str, float]:
    """The accuracies of a seed."""
    seen = {"first": 8 * seed, "policies": 6}
    unseen = {"first": 8 * seed + 6, "policies": 2}
    train = list(Policies(size=TRIPLES, seed=seed, **seen).load())
    test = list(Policies(size=TEST, seed=seed + 1000, **unseen).load())
    same = list(Policies(size=TEST, seed=seed + 1000, **seen).load())
    found = {}
    for name, with_reference in (("with a reference", True), ("without a reference", False)):
        weights = fit(pairs(train, with_reference), STEPS)
        found[f"{name}, policies that were seen"] = right(pairs(same, with_reference), weights)
        found[f"{name}, policies that were not"] = right(pairs(test, with_reference), weights)
        if with_reference:
            trained = weights
            swapped = [
                Task(key="", prompt="", answer=t.preferences[0].rejected, preferences=t.preferences) for t in test
            ]
            found["the reference replaced by the rejected text: share reversed"] = 1 - right(
                pairs(swapped, True), weights
            )
    source = Policies(first=8 * seed, policies=8)
    held_out = ranked(seed + 500, TEST, source)
    found["ranked pairs, before any of them"] = right(held_out, trained)
    for count in RANKED:
        x = ranked(seed, count, source)
        found[f"{count} ranked pairs, from zero"] = right(held_out, fit(x, 100))
        found[f"{count} ranked pairs, after the triples"] = right(held_out, fit(x, 100, trained, RATE / 10))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    results = [one(seed) for seed in range(parser.parse_args().seeds)]
    table = []
    for name in results[0]:
        found = mean(np.array([result[name] for result in results]))
        table.append([name, f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"])
    print(json.dumps({"columns": ["reward", "accuracy on pairs"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
