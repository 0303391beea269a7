"""Does a stated direction steer helpfulness and length, round by round? Sheet of row 174 (arXiv:2402.18571), exactly.

    python docs/experiments/direction_tables.py --seeds 5

A policy is a table of the probabilities of lists, by numbers of wanted and of other words, up to twelve (the tasks
`wanted_words`), one for each of 31 directions within 45 degrees. It begins as lists of all lengths with 40 % wanted
words; each seed perturbs it, and the ratings of a reward model, by noise of 0.3. A round replaces it by the best of 16
texts along the rated direction: the distribution of the largest of 16 draws, a sum over the table. True scores are
reported.

    not stated    one table for all directions, the mean of what is best along each
    one score     the table of angle 0 at all directions

Also: helpfulness and verbosity (0 to 4) at three angles, and the correlation of v2 with the number of words over
directions and texts. A curve that expands has larger scores with every round.
"""

import argparse
import json

import numpy as np
from numpy.typing import NDArray

from posttrain.datasets.wanted_words import LONGEST, WANTED, WORDS, labels_of, written
from posttrain.statistics.intervals import mean

Reals = NDArray[np.float64]
N, ROUNDS, NOISE, SHARE = 16, 3, 0.3, 0.4
LISTS = [(a, b) for a in range(LONGEST + 1) for b in range(LONGEST + 1 - a) if a + b]
"""Numbers of wanted and of other words; empty lists are excluded."""
ANGLES = np.radians(np.linspace(-45.0, 45.0, 31))
TRUE_T2 = np.array(
    [
        [labels_of(written([WANTED[0]] * a + [WORDS[-1]] * b), WANTED)[name] for name in ("helpfulness", "verbosity")]
        for a, b in LISTS
    ]
)
"""[lists, 2] ratings by counting."""
V_A2 = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(parser.parse_args().seeds):
        for arm, row in one_seed(seed).items():
            found.setdefault(arm, []).append(row)
    columns = list(found["imitation"][0])
    table = [[arm, *(shown([row[name] for row in rows]) for name in columns)] for arm, rows in found.items()]
    print(json.dumps({"columns": ["after", *columns], "table": table}, indent=1))


def one_seed(seed: int) -> dict[str, dict[str, float]]:
    """The numbers of every arm."""
    rng = np.random.default_rng([seed, 174])
    length_T = np.array([a + b for a, b in LISTS])
    ways_T = np.array([np.prod(np.arange(b + 1, a + b + 1)) / np.prod(np.arange(1, a + 1)) for a, b in LISTS])
    base_T = (
        np.array([SHARE**a * (1 - SHARE) ** b for a, b in LISTS]) * ways_T * np.exp(rng.normal(0, NOISE, len(LISTS)))
    )
    base_T /= base_T.sum()
    rated_AT = V_A2 @ (TRUE_T2 + rng.normal(0.0, NOISE, TRUE_T2.shape)).T
    policy_AT = np.tile(base_T, (len(ANGLES), 1))
    rows = {"imitation": measured(policy_AT, length_T)}
    blind_T = base_T
    for i in range(ROUNDS):
        policy_AT = np.stack([best_of(p_T, s_T) for p_T, s_T in zip(policy_AT, rated_AT, strict=True)])
        blind_T = np.mean([best_of(blind_T, s_T) for s_T in rated_AT], axis=0)
        rows[f"round {i + 1}"] = measured(policy_AT, length_T)
    rows["not stated"] = measured(np.tile(blind_T, (len(ANGLES), 1)), length_T)
    rows["one score"] = measured(np.tile(policy_AT[len(ANGLES) // 2], (len(ANGLES), 1)), length_T)
    return rows


def best_of(p_T: Reals, score_T: Reals) -> Reals:
    """[T] the distribution of the text with the largest score of `N` draws; no two scores are equal."""
    order = np.argsort(score_T)
    below = np.minimum(np.cumsum(p_T[order]), 1.0)
    found_T = np.zeros_like(p_T)
    found_T[order] = np.diff(below**N, prepend=0.0)
    return np.asarray(found_T / found_T.sum(), np.float64)


def measured(policy_AT: Reals, length_T: Reals) -> dict[str, float]:
    """True scores of a policy, by angle, and the correlation of v2 with the number of words."""
    rating_A2 = policy_AT @ TRUE_T2
    found = {"score": float((V_A2 * rating_A2).sum(1).mean())}
    for name, place in (("-45", 0), ("0", len(ANGLES) // 2), ("45", -1)):
        found |= {f"helpful {name}": float(rating_A2[place, 0]), f"verbose {name}": float(rating_A2[place, 1])}
    words_A, squares_A = policy_AT @ length_T, policy_AT @ length_T**2
    covariance = float((V_A2[:, 1] * words_A).mean() - V_A2[:, 1].mean() * words_A.mean())
    variance = float(squares_A.mean() - words_A.mean() ** 2)
    return found | {"v2, words": covariance / float(V_A2[:, 1].std() * np.sqrt(variance))}


def shown(values: list[float]) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


if __name__ == "__main__":
    main()
