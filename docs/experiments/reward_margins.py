"""What a beta by the margin of a reward does where labels are flipped. Sheet of row 238 (arXiv:2502.10391).

Answers are vectors of 16 numbers, whose quality is their product with a hidden vector of length 1; a pair is two of
them, the better one chosen, but in 20 % of the pairs the label is flipped. A reward model has the quality with noise
of .3, so that its margin is mostly small or negative where a label is flipped. A linear policy (the logit of a pair is
beta theta (a - b), the reference at 0) is trained by 400 steps of gradient descent on the loss of DPO, with the beta of
each pair

    .1 (1 + w (1 - exp(-.5 * 4 * margin)))

Accuracy on 2,000 other pairs without flips, less that of DPO with beta .1, in points; `shuffled` has the margins of
other pairs. `clean` is the share of the gradient's size at the start that is of pairs whose label is not flipped.

    python docs/experiments/reward_margins.py --seeds 20
"""

import argparse
import json

import numpy as np

from posttrain.statistics.intervals import mean

WIDTH, FLIPPED, NOISE, STEPS, RATE, SCALE = 16, 0.2, 0.3, 400, 3.0, 4.0
ARMS = {"w 0.5": (0.5, False), "w 2": (2.0, False), "w 2, shuffled": (2.0, True)}


def betas(margin_P: np.ndarray, w: float) -> np.ndarray:
    """[P] beta of each pair."""
    return np.asarray(0.1 * (1 + w * (1 - np.exp(-0.5 * SCALE * np.maximum(margin_P, 0.0)))))


def trained(gap_PD: np.ndarray, beta_P: np.ndarray) -> np.ndarray:
    """[D] the policy after gradient descent."""
    theta = np.zeros(WIDTH)
    for _ in range(STEPS):
        pull_P = beta_P / (1 + np.exp(beta_P * (gap_PD @ theta)))
        theta = theta + RATE * (pull_P[:, None] * gap_PD).mean(0)
    return theta


def play(seed: int, pairs: int) -> dict[str, float]:
    """Points above DPO of each arm, and shares of the gradient."""
    rng = np.random.default_rng([seed, pairs])
    truth = rng.normal(size=WIDTH)
    truth /= np.linalg.norm(truth)
    gap_PD = rng.normal(size=(pairs, WIDTH)) - rng.normal(size=(pairs, WIDTH))
    gap_PD *= np.sign(gap_PD @ truth)[:, None]
    flipped_P = rng.random(pairs) < FLIPPED
    gap_PD[flipped_P] *= -1
    margin_P = gap_PD @ truth + rng.normal(0.0, NOISE * 2**0.5, pairs)
    tested = rng.normal(size=(2000, WIDTH)) - rng.normal(size=(2000, WIDTH))

    def accuracy(theta: np.ndarray) -> float:
        return 100 * float(((tested @ theta > 0) == (tested @ truth > 0)).mean())

    base = accuracy(trained(gap_PD, np.full(pairs, 0.1)))
    found = {"DPO": base}
    for name, (w, shuffled) in ARMS.items():
        beta_P = betas(rng.permutation(margin_P) if shuffled else margin_P, w)
        found[name] = accuracy(trained(gap_PD, beta_P)) - base
        found[f"clean, {name}"] = float((beta_P * ~flipped_P).sum() / beta_P.sum())
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    table, columns = [], list[str]()
    for pairs in (64, 200, 1000):
        found = [play(seed, pairs) for seed in seeds]
        columns = list(found[0])
        cells = []
        for column in columns:
            own = mean([one[column] for one in found])
            cells.append(f"{own.value:+.2f} [{own.interval.low:+.2f}, {own.interval.high:+.2f}]")
        table.append([str(pairs), *cells])
    print(json.dumps({"columns": ["pairs", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
