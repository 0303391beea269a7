"""Do first sentences, added as wrong responses, keep a verifier from taking openers for answers?

Two experiments without a language model. The verifier is logistic in what a response shows: whether it has an opener,
whether it has a result, and whether that is the reference's (a noisy match), trained on 2,000 responses in which
openers go with right ones; then with negatives added that have an opener and no result, an eighth as many. Reported are
the chance that an opener alone is accepted, accuracy, and recall of right responses.

The policy is a bandit of two actions: an opener, which the verifier accepts by its rate of false positives, and an
answer, which is right with 0.3 at the start; each right answer that is drawn raises that chance. REINFORCE with a
baseline has 3,000 pulls. Reported are the share of openers and the chance of a right answer at the end.

    python docs/experiments/opener_verifier.py --seeds 10
"""

import argparse
import json

import numpy as np

from posttrain.statistics.intervals import mean

SIZE, STEPS, RATE = 2000, 2000, 0.5
RATES = (0.9, 0.3, 0.03)


def responses(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """[N, 4] features (a constant, opener, result, match) and [N] labels."""
    right = rng.random(size) < 0.5
    opener = rng.random(size) < np.where(right, 0.9, 0.1)
    match = np.where(rng.random(size) < 0.05, ~right, right)
    return np.stack([np.ones(size), opener, np.ones(size), match], 1).astype(float), right.astype(float)


def trained(x: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Weights of logistic regression by full steps."""
    weights = np.zeros(x.shape[1])
    for _ in range(STEPS):
        weights += RATE * (label - 1 / (1 + np.exp(-x @ weights))) @ x / len(x)
    return weights


def verifier(seed: int, *, added: bool) -> tuple[float, float, float]:
    """Probability of accepting an opener alone, accuracy, and recall."""
    rng = np.random.default_rng(seed)
    x, label = responses(rng, SIZE)
    test, test_label = responses(np.random.default_rng(10_000 + seed), SIZE)
    if added:
        begun = np.tile([1.0, 1.0, 0.0, 0.0], (SIZE // 8, 1))
        x, label = np.concatenate([x, begun]), np.concatenate([label, np.zeros(len(begun))])
    weights = trained(x, label)
    said = test @ weights > 0
    recall = said[test_label == 1].mean()
    opener = 1 / (1 + np.exp(-np.array([1.0, 1.0, 0.0, 0.0]) @ weights))
    return float(opener), float((said == test_label).mean()), float(recall)


def policy(seed: int, accepted: float) -> tuple[float, float]:
    """Share of openers, and the chance that an answer is right."""
    rng = np.random.default_rng(seed)
    logit, skill, baseline = 0.0, np.log(0.3 / 0.7), 0.3
    for _ in range(3000):
        p, q = 1 / (1 + np.exp(-logit)), 1 / (1 + np.exp(-skill))
        opener, right = rng.random() < p, rng.random() < q
        reward = float(rng.random() < accepted) if opener else float(right)
        advantage = reward - baseline
        baseline += 0.02 * advantage
        logit += 0.1 * advantage * (opener - p)
        skill += 0.0 if opener else 0.1 * advantage * (right - q)
    return float(1 / (1 + np.exp(-logit))), float(1 / (1 + np.exp(-skill)))


def text(values: list[float]) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    table = []
    for name, added in (("verifier, as given", False), ("verifier, with first sentences", True)):
        found = [verifier(seed, added=added) for seed in seeds]
        table.append([name, *(text([row[place] for row in found]) for place in range(3)), "-", "-"])
    for accepted in RATES:
        ends = [policy(seed, accepted) for seed in seeds]
        own = [text([row[place] for row in ends]) for place in range(2)]
        table.append([f"policy, openers accepted with {accepted:g}", "-", "-", "-", *own])
    columns = ["", "openers accepted", "accuracy", "recall", "openers written", "answers right"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
