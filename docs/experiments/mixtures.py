"""Is the best mixture of domains found from the scores of few runs? Sheet of row 18 (arXiv:2505.24871), experiment 1.

A score 1 - |w - best|^2 with noise of standard deviation .005 on each run; the best mixture is drawn from a Dirichlet
distribution (4, ..., 4), the runs' from (1, ..., 1). The surface's maximum counts as found within .05 of the best
mixture; `score` is its true score, beside that of equal shares; `linear` is the domain with the largest coefficient of
a linear fit, alone, which is always a corner. `norm` and `coli` are computed from the 2 m + 1 runs to begin with.

    python docs/experiments/mixtures.py --trials 200 --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.statistics import mixtures
from posttrain.statistics.intervals import mean

NOISE, NEAR = 0.005, 0.05


def trial(domains: int, runs: int, rng: np.random.Generator) -> dict[str, float]:
    """What each rule finds from one set of runs."""
    best = rng.dirichlet(np.full(domains, 4.0))

    def true(rows: np.ndarray) -> np.ndarray:
        return np.asarray(1.0 - ((rows - best) ** 2).sum(-1))

    rows = rng.dirichlet(np.ones(domains), runs)
    scores = true(rows) + rng.normal(0.0, NOISE, runs)
    top, _, _ = mixtures.quadratic(rows, scores, seed=int(rng.integers(2**31)))
    corner = np.eye(domains)[np.linalg.lstsq(rows, scores, rcond=None)[0].argmax()]
    begun = mixtures.seeds(domains)
    first = true(begun) + rng.normal(0.0, NOISE, len(begun))
    without = [int(np.flatnonzero((begun > 0).sum(1) == domains - 1)[i]) for i in range(domains)]
    gone = {int(np.flatnonzero(begun[r] == 0)[0]): first[r] for r in without}
    return {
        "found": float(np.linalg.norm(top[0] - best) <= NEAR),
        "score": float(true(top[0])),
        "equal": float(true(np.full(domains, 1.0 / domains))),
        "linear": float(true(corner)),
        "norm": float(true(mixtures.norm(np.array([gone[m] for m in range(domains)])))),
        "coli": float(true(mixtures.coli(begun, first))),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    table, columns = [], list[str]()
    for domains, runs in ((3, 6), (3, 12), (5, 15), (5, 25)):
        means: dict[str, list[float]] = {}
        for seed in range(args.seeds):
            rng = np.random.default_rng([seed, domains, runs])
            found = [trial(domains, runs, rng) for _ in range(args.trials)]
            for name in found[0]:
                means.setdefault(name, []).append(float(np.mean([one[name] for one in found])))
        columns = list(means)
        cells = []
        for values in means.values():
            own = mean(values)
            cells.append(f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]")
        table.append([str(domains), str(runs), *cells])
    print(json.dumps({"columns": ["domains", "runs", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
