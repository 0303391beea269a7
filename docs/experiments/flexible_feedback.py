"""Does consensus make a better judge of principles, and does a policy need principles of its own for each prompt?

Replies are polite or not and short or not (`tasks/reviewed_replies`, three annotators). A logistic judge of the reply's
traits, the principle and their products is fitted to 200 labels: of every annotator, with evidence alone, or of those
who agree, all with evidence. Bradley and Terry fit an overall preference (both traits count) without a principle.
Reported is under how many of both principles a polite long and a blunt short reply are in the right order. A softmax
policy over the four kinds of reply then learns by REINFORCE from the judge's log-odds: with a principle drawn for each
step, or always "polite".

    python docs/experiments/flexible_feedback.py --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.components.annotators.feedback import Feedback
from posttrain.components.annotators.noise import Noise
from posttrain.components.annotators.several import Several
from posttrain.components.tasks.feedback_items import FeedbackItems
from posttrain.components.tasks.reviewed_replies import PRINCIPLES, ReviewedReplies
from posttrain.statistics.intervals import mean
from posttrain.statistics.logistic import sigmoid

LABELS, STEPS, RATE = 200, 400, 0.1
KINDS = [(polite, short) for polite in (0, 1) for short in (0, 1)]


def features(polite: float, short: float, principle: str) -> np.ndarray:
    """Traits, principle, and their products."""
    which = np.array([principle == name for name in PRINCIPLES], float)
    traits = np.array([polite, short]) - 0.5
    return np.concatenate([traits, which, np.outer(which, traits).ravel()])


def labels(noise: float, seed: int, **settings: float) -> list[tuple[np.ndarray, bool, bool]]:
    """Features, label and truth of some items of feedback."""
    annotator = Several(parts=(Noise(rate=noise, spread=0.0), Feedback(invented=0.1)))
    source = ReviewedReplies(size=1500, seed=seed, annotators=(annotator,) * 3, draws=f"{noise}")
    traits = {str(task.prompt): task.fields for task in source.load()}
    rows = []
    for item in FeedbackItems(tasks=source, **settings).load():
        own = traits[str(item.prompt).splitlines()[0]]
        x = features(own["polite"], own["short"], item.domain)
        rows.append((x, item.answer == "Yes", bool(own[item.domain])))
    order = np.random.default_rng(seed).permutation(len(rows))[:LABELS]
    return [rows[i] for i in order]


def fit(x: np.ndarray, y: np.ndarray, decay: float = 0.01) -> np.ndarray:
    """Weights of a logistic judge."""
    weights = np.zeros(x.shape[1])
    for _ in range(2000):
        weights += 0.5 * ((y - sigmoid(x @ weights)) @ x / len(x) - decay * weights)
    return weights


def reversed_pairs(weights: np.ndarray) -> float:
    """Share of both principles under which the right one of two replies has the larger score."""
    right = []
    for principle in PRINCIPLES:
        polite, short = features(1, 0, principle) @ weights, features(0, 1, principle) @ weights
        right.append((polite > short) == (principle == "polite"))
    return float(np.mean(right))


def policy(weights: np.ndarray, mixed: bool, seed: int) -> tuple[float, float]:
    """Shares of polite and of short replies that the policy learns."""
    rng, logits = np.random.default_rng(seed), np.zeros(4)
    for _ in range(STEPS):
        chance = np.exp(logits - logits.max())
        chance /= chance.sum()
        principle = PRINCIPLES[int(rng.integers(2))] if mixed else "polite"
        kinds = rng.choice(4, 8, p=chance)
        reward = np.array([features(*KINDS[k], principle) @ weights for k in kinds])
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        for kind, own in zip(kinds, advantage, strict=True):
            logits += RATE / 8 * own * (np.eye(4)[kind] - chance)
    chance = np.exp(logits - logits.max())
    chance /= chance.sum()
    return tuple(float(sum(p for p, kind in zip(chance, KINDS, strict=True) if kind[t])) for t in (0, 1))  # type: ignore[return-value]


def one(seed: int) -> dict[str, float]:
    """The figures of a seed."""
    found: dict[str, float] = {}
    sources = {"every annotator": {"evidence": 0.0, "similar": 0.0}, "with evidence": {"similar": 0.0}, "consensus": {}}
    for noise in (0.15, 0.35):
        for name, settings in sources.items():
            rows = labels(noise, seed, **settings)
            x, y = np.array([row[0] for row in rows]), np.array([row[1] for row in rows], float)
            weights = fit(x, y)
            found[f"{name}, noise {noise:g}: labels that are true"] = float(np.mean([row[1] == row[2] for row in rows]))
            truth = [(features(p, s, name_), bool((p, s)[i])) for p, s in KINDS for i, name_ in enumerate(PRINCIPLES)]
            error = [abs(float(sigmoid(own @ weights)) - holds) for own, holds in truth]
            found[f"{name}, noise {noise:g}: distance of P(Yes) from the truth"] = float(np.mean(error))
            found[f"{name}, noise {noise:g}: pairs in order under both principles"] = reversed_pairs(weights)
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, 2, (LABELS, 2, 2))
    gap = pairs[:, 0].sum(1) - pairs[:, 1].sum(1)
    chosen = gap + rng.logistic(size=LABELS) > 0
    margin = (pairs[:, 0] - pairs[:, 1]).astype(float)
    overall = fit(margin, chosen.astype(float))
    found["Bradley and Terry, no principle: pairs in order under both principles"] = float(
        np.mean([(overall[0] > overall[1]) == (principle == "polite") for principle in PRINCIPLES])
    )
    for name, mixed in (("a principle for each prompt", True), ("always polite", False)):
        polite, short = policy(weights, mixed, seed)
        found[f"policy, {name}: polite replies"], found[f"policy, {name}: short replies"] = polite, short
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
    print(json.dumps({"columns": ["labels and policies", "mean"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
