"""Does asking a biased judge in both orders make a better policy than asking it once?

A bandit of six arms with qualities 0 to 2, a softmax policy, four pulls a step. Every two pulls are compared by a noisy
judge: the difference of their qualities, plus noise of std 1, plus a bias for the pull that is shown first. The
judge's margin is a sign (binary) or that difference rounded to -3 .. 3 without 0 (graded); the advantage is `pairwise`.
Reported is the expected quality of the policy after 400 steps.

    python docs/experiments/pairwise_bandit.py --seeds 12
"""

import argparse
import json

import numpy as np

from posttrain.statistics.intervals import mean

QUALITY = np.linspace(0.0, 2.0, 6)
STEPS, PULLS, RATE, NOISE, EPSILON = 400, 4, 0.1, 1.0, 1e-6
FORMS = ("binary", "graded")


def verdict(difference: np.ndarray, form: str) -> np.ndarray:
    """[...] the margin of the first over the second."""
    if form == "binary":
        return np.where(difference > 0, 1.0, -1.0)
    return np.where(difference > 0, 1.0, -1.0) * np.clip(np.ceil(np.abs(difference)), 1, 3)


def learned(form: str, orders: int, bias: float, seed: int) -> float:
    """Expected quality of the policy that is learned."""
    rng = np.random.default_rng(seed)
    logits = np.zeros(len(QUALITY))
    first, second = np.triu_indices(PULLS, 1)
    for _ in range(STEPS):
        chance = np.exp(logits - logits.max())
        chance /= chance.sum()
        arms = rng.choice(len(QUALITY), PULLS, p=chance)
        true = QUALITY[arms[first]] - QUALITY[arms[second]]
        said = verdict(true + bias + NOISE * rng.normal(size=len(first)), form)
        if orders == 2:
            said = (said - verdict(-true + bias + NOISE * rng.normal(size=len(first)), form)) / 2
        margin = np.zeros((PULLS, PULLS))
        margin[first, second], margin[second, first] = said, -said
        spread = np.sqrt((margin**2).sum() / (2 * PULLS * (PULLS - 1)) + EPSILON)
        for arm, advantage in zip(arms, margin.mean(1) / spread, strict=True):
            logits += RATE / PULLS * advantage * (np.eye(len(QUALITY))[arm] - chance)
    chance = np.exp(logits - logits.max())
    return float(chance @ QUALITY / chance.sum())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=12)
    seeds = range(parser.parse_args().seeds)
    table = []
    for form in FORMS:
        for orders in (1, 2):
            row = [f"{form}, {'both orders' if orders == 2 else 'one order'}"]
            for bias in (0.0, 1.5 * NOISE):
                found = mean(np.array([learned(form, orders, bias, seed) for seed in seeds]))
                row.append(f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]")
            table.append(row)
    columns = ["expected quality, of at most 2", "no bias", "bias of 1.5 std of the noise"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
