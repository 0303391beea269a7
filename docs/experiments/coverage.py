"""How often the intervals of a comparison hold the truth, by simulation; prints the table of docs/compare.md.

.venv/bin/python docs/experiments/coverage.py
"""

import numpy as np

from posttrain.statistics.interquartile import stratified_interquartile_mean
from posttrain.statistics.multiple import holm
from posttrain.statistics.repeated import repeated_difference

REPEATS, RESAMPLED = 1000, 1000
SEEDS = (3, 5, 10)


def drawn(shape: str, generator: np.random.Generator, seeds: int) -> np.ndarray:
    """[seeds] differences of mean 0 and std 1."""
    if shape == "normal":
        return generator.normal(size=seeds)
    return generator.exponential(size=seeds) - 1.0


def main() -> None:
    """Print coverage in percent, and how often any of three differences is claimed where there is none."""
    print("| differences | seeds | t interval holds the mean | any of three claimed, alone | any claimed, Holm |")
    print("|---|---|---|---|---|")
    for shape in ("normal", "skewed"):
        for seeds in SEEDS:
            generator = np.random.default_rng(seeds)
            held = alone = corrected = 0
            for _ in range(REPEATS):
                found = [repeated_difference([0.0] * seeds, drawn(shape, generator, seeds)) for _ in range(3)]
                held += found[0].interval.low <= 0 <= found[0].interval.high
                alone += min(one.p_value for one in found) < 0.05
                corrected += min(one.p_value for one in holm([one.p_value for one in found])) < 0.05
            shares = " | ".join(f"{100 * count / REPEATS:.1f} %" for count in (held, alone, corrected))
            print(f"| {shape} | {seeds} | {shares} |")
    for seeds in SEEDS:
        generator = np.random.default_rng(seeds)
        held = 0
        for _ in range(RESAMPLED):
            low, high = stratified_interquartile_mean(generator.normal(size=seeds), resamples=1000).interval
            held += low <= 0 <= high
        print(f"interquartile mean, normal, {seeds} seeds: {100 * held / RESAMPLED:.1f} %")


if __name__ == "__main__":
    main()
