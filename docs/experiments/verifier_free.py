"""Does a verifier gain over imitation with the horizon? Sheet of row 299 (arXiv:2502.12118), experiment 1, exactly.

    python docs/experiments/verifier_free.py --seeds 5 --traces 512

In the environment of a planted subsequence of three letters the base draws one of several procedural policies for each
trace. Verifier-free: the mixture that imitates the rewarded traces. Verifier-based: the mixture of the largest mean
reward in a chi-squared ball of radius 1, from the same traces with their rewards. Prints for each base and horizon the
mean reward over the horizon of both mixtures, which is exact, their gap, and both from `traces` traces over seeds.
"""

import argparse
import json

import numpy as np

from posttrain.statistics.intervals import mean
from posttrain.statistics.planted import Planted

BASES = {"mixed": (0.1, 0.3, 0.9), "nearly equal": (0.35, 0.4, 0.45), "one policy": (0.4,)}


def main() -> None:
    """Print a line for each base and horizon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--traces", type=int, default=512)
    parser.add_argument("--radius", type=float, default=1.0)
    given = parser.parse_args()
    for name, gammas in BASES.items():
        for horizon in (10, 20, 40):
            base = Planted(gammas, [1 / len(gammas)] * len(gammas), 3, horizon)
            gaps, free, based = [], base.imitated().mean / horizon, base.verified(given.radius).mean / horizon
            for seed in range(given.seeds):
                rng = np.random.Generator(np.random.Philox(key=[seed, horizon]))
                one, other = base.estimated(given.radius, given.traces, rng)
                gaps.append((other.mean - one.mean) / horizon)
            found = mean(gaps)
            row = {
                "base": name,
                "horizon": horizon,
                "sigma": base.variance**0.5 / horizon,
                "above": base.above(1.0),
                "base_pay": base.mean / horizon,
                "verifier_free": free,
                "verifier_based": based,
                "gap": based - free,
                "gap_in_symbols": (based - free) * horizon,
                "estimated_gap": found.value,
                "low": found.interval.low,
                "high": found.interval.high,
            }
            print(json.dumps({key: round(v, 4) if isinstance(v, float) else v for key, v in row.items()}))


if __name__ == "__main__":
    main()
