"""Does a reward model that reads principles follow them, and can a principle that is added mid-run turn a policy?

A text has three traits, kind, exact and long, as numbers. A judge compares two texts by one trait in both orders, with
noise (std 1) and a preference for the first (0.5). Examples: `selections/principle_pairs`, 300 pairs 4 times.
A logistic model reads products of trait differences and principles (1, -1 for negated, 0 where not shown); a plain one
reads the differences alone. Reported are, on new pairs that differ in a trait by 1, the share in order by it, the share
that its negation reverses, with margins over the variance and the std, and where the judge's scores of one trait are
five times larger.

Then a policy of 27 texts, which prefers long ones, follows 50 exact gradients of the model's score for kind less half
of the KL to its start, and 50 more after "not long" is added to its principles: its mean kindness and length then.

    python docs/experiments/principles.py --seeds 5
"""

import argparse
import json
from itertools import product
from random import Random

import numpy as np

from posttrain.components.selections.principle_pairs import PrinciplePairs
from posttrain.datasets.principles import Principle
from posttrain.statistics.intervals import mean

TRAITS = ("kind", "exact", "long")
KL, RATE = 0.5, 3.0
PRINCIPLES = {name: Principle(text=name, negated=f"not {name}") for name in TRAITS}


def examples(seed: int, scale: str, loud: float) -> tuple[np.ndarray, np.ndarray]:
    """[M, 3] differences of chosen and rejected, and [M, 3] signs of the principles."""
    rng = np.random.default_rng(seed)
    selection = PrinciplePairs(principles=PRINCIPLES, scale=scale)  # type: ignore[arg-type]
    first_P3, second_P3 = rng.normal(size=(2, 300, 3))
    difference_P3 = first_P3 - second_P3
    noise_P32 = rng.normal(size=(300, 3, 2)) + np.array([0.5, -0.5])
    score_P32 = (difference_P3[..., None] + noise_P32) * np.array([loud, 1.0, 1.0])[:, None]
    spread = {name: selection._spread(score_P32[:, i].tolist()) for i, name in enumerate(TRAITS)}
    chosen, signs = [], []
    for p in range(300):
        row = {"texts": ["0", "1"], "scores": {n: score_P32[p, i].tolist() for i, n in enumerate(TRAITS)}}
        random = Random(f"{seed}:{p}")
        for pair in (selection._example(row, spread, random) for _ in range(4)):
            if pair is not None:
                chosen.append(difference_P3[p] * (1 if pair.chosen == "0" else -1))
                shown = pair.fields["principles"].split("; ")
                signs.append([(name in shown) - (f"not {name}" in shown) for name in TRAITS])
    return np.array(chosen), np.array(signs, float)


def fitted(input_MD: np.ndarray) -> np.ndarray:
    """[D] weights of a logistic regression without an offset, every example a win."""
    weight_D = np.zeros(input_MD.shape[1])
    for _ in range(400):
        weight_D += input_MD.T @ (1 / (1 + np.exp(input_MD @ weight_D))) / len(input_MD) - 0.002 * weight_D
    return weight_D


def read(difference_M3: np.ndarray, sign_M3: np.ndarray) -> np.ndarray:
    """[M, 9] products of each difference and each principle."""
    return np.asarray((difference_M3[:, :, None] * sign_M3[:, None]).reshape(len(difference_M3), -1))


def followed(seed: int, scale: str, loud: float, plain: bool) -> list[float]:
    """Pairs in order and reversed, the mean over traits."""
    difference_M3, sign_M3 = examples(seed, scale, loud)
    weight_D = fitted(difference_M3 if plain else read(difference_M3, sign_M3))
    rng = np.random.default_rng(seed + 1000)
    right, turned = [], []
    for trait in range(3):
        pair_N3 = rng.normal(size=(500, 3))
        pair_N3[:, trait] = 1.0
        sign_N3 = np.eye(3)[[trait] * 500]
        plus, minus = (
            pair_N3 @ weight_D if plain else read(pair_N3, sign * sign_N3) @ weight_D for sign in (1.0, -1.0)
        )
        right.append((plus > 0).mean())
        turned.append((np.sign(plus) == -np.sign(minus)).mean() if not plain else 0.0)
    return [float(np.mean(right)), float(np.mean(turned))]


def steered(seed: int) -> list[float]:
    """Mean kindness and length after 50 steps for kind, and after 50 more with "not long"."""
    weight_D = fitted(read(*examples(seed, "variance", 1.0)))
    text_A3 = np.array(list(product((-1.0, 0.0, 1.0), repeat=3)))
    logits = start = 1.0 * text_A3[:, 2]  # long texts are likelier at first
    start = start - np.log(np.exp(start).sum())
    found = []
    for signs in ([1.0, 0.0, 0.0], [1.0, 0.0, -1.0]):
        reward_A = read(text_A3, np.tile(signs, (27, 1))) @ weight_D
        reward_A = (reward_A - reward_A.mean()) / reward_A.std()
        for _ in range(50):
            policy = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
            gain_A = reward_A - KL * (np.log(policy) - start)
            logits = logits + RATE * policy * (gain_A - policy @ gain_A)
        policy = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        found += [float(policy @ text_A3[:, 0]), float(policy @ text_A3[:, 2])]
    return found


def shown(values: np.ndarray) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    arms = {
        "reads principles, variance": ("variance", 1.0, False),
        "reads principles, std": ("std", 1.0, False),
        "reads principles, variance, one trait five times larger": ("variance", 5.0, False),
        "reads principles, std, one trait five times larger": ("std", 5.0, False),
        "reads no principles": ("variance", 1.0, True),
    }
    table = []
    for name, arm in arms.items():
        results = np.array([followed(seed, *arm) for seed in seeds])
        table.append([name, *(shown(column) for column in results.T)])
    kind, long, later_kind, later_long = np.array([steered(seed) for seed in seeds]).T
    said = f"for kind: kindness {shown(kind)}, length {shown(long)}; with not long added {shown(later_kind)}, "
    columns = ["reward model", "in order by the principle", "reversed by its negation"]
    print(json.dumps({"said": said + shown(later_long), "columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
