"""Do few factors make rewards of steps recoverable from the returns of few episodes?

Episodes of 20 steps with 40 numbers each, of which five matter, through three factors: the true reward of a step is
x3 x7 - 0.7 max(x11, 0) + 0.5 sin(2 x20). The decoder of `latent_reward` learns from returns only, once from the 40
numbers and once from the three factors: 600 updates with the length-normalised loss. Reported is the correlation of its
rewards with the true ones on 100 other episodes.

    python docs/experiments/latent_reward.py --seeds 5
"""

import argparse

import numpy as np

from posttrain.components.advantages._decoder import Trainer, decoded, new_weights
from posttrain.statistics.intervals import mean

LENGTH, NUMBERS, UPDATES, BATCH = 20, 40, 600, 32
EPISODES = (40, 80, 120)


def world(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers, factors and true rewards of every step."""
    x = rng.normal(size=(count, LENGTH, NUMBERS))
    factors = np.stack([x[..., 3] * x[..., 7], np.maximum(x[..., 11], 0.0), np.sin(2.0 * x[..., 20])], -1)
    return x, factors, factors @ np.array([1.0, -0.7, 0.5])


def correlation(steps: np.ndarray, held: np.ndarray, reward: np.ndarray, truth: np.ndarray, seed: int) -> float:
    """Of the decoder's rewards with the true ones."""
    rng = np.random.default_rng(seed)
    trainer = Trainer(new_weights(steps.shape[-1], rng))
    for _ in range(UPDATES):
        place = rng.choice(len(steps), size=min(len(steps), BATCH), replace=False)
        trainer.update("mean", list(steps[place]), reward[place].sum(1), LENGTH, rng)
    return float(np.corrcoef(decoded(trainer.weights, held.reshape(-1, held.shape[-1])), truth.reshape(-1))[0, 1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    for count in EPISODES:
        rows = []
        for seed in range(seeds):
            rng = np.random.default_rng([seed, count])
            (x, factors, reward), (held_x, held_factors, truth) = world(count, rng), world(100, rng)
            rows.append([correlation(a, b, reward, truth, seed) for a, b in ((x, held_x), (factors, held_factors))])
        cells = [mean(column) for column in np.array(rows).T]
        told = [f"{c.value:.2f} [{c.interval.low:.2f}, {c.interval.high:.2f}]" for c in cells]
        print(f"{count} episodes | " + " | ".join(told))


if __name__ == "__main__":
    main()
