"""Are rewards known better from pairs of one tree than from pairs of independent responses?

Responses have three segments of six kinds: 216 of them. A reward is the sum of independent Gaussian values of a
response's prefixes, of which early, all or late ones vary most. Pairs are compared with noise of std 1, and the
posterior is exact. Chain pairs are drawn from all responses; tree pairs from one or four complete binary trees of depth
3, as many from each depth of the lowest common ancestor. Reported is the mean posterior variance of a difference of two
rewards, over all responses, as a share of the prior variance: with as many pairs, and with as many labelled segments,
of which a pair of a tree has only those after its ancestor.

    python docs/experiments/prefix_trees.py --seeds 5
"""

import argparse
import json
from itertools import combinations, product

import numpy as np

from posttrain.components.tasks.prefixes import SPREADS
from posttrain.statistics.intervals import mean

KINDS, DEPTH, NOISE = 6, 3, 1.0
RESPONSES = list(product(range(KINDS), repeat=DEPTH))
NODES = {prefix: i for i, prefix in enumerate(r[: d + 1] for r in RESPONSES for d in range(DEPTH))}
NODES = {prefix: i for i, prefix in enumerate(dict.fromkeys(NODES))}
PATHS = np.zeros((len(RESPONSES), len(NODES)))
for _row, _response in enumerate(RESPONSES):
    for _depth in range(DEPTH):
        PATHS[_row, NODES[_response[: _depth + 1]]] = 1.0
Pair = tuple[int, int]


def ancestor(a: int, b: int) -> int:
    """Number of segments that two responses share from the start."""
    return next(d for d in range(DEPTH + 1) if d == DEPTH or RESPONSES[a][d] != RESPONSES[b][d])


def chain(rng: np.random.Generator, count: int) -> list[Pair]:
    """Pairs of independent responses."""
    return [tuple(map(int, rng.choice(len(RESPONSES), 2, replace=False))) for _ in range(count)]  # type: ignore[misc]


def tree(rng: np.random.Generator, count: int, trees: int) -> list[Pair]:
    """Pairs of leaves of some trees, equally often from each depth of the ancestor, again where they run out."""
    by_depth: list[list[Pair]] = [[] for _ in range(DEPTH)]
    for _ in range(trees):
        leaves: list[tuple[int, ...]] = [()]
        for _ in range(DEPTH):
            leaves = [(*leaf, int(kind)) for leaf in leaves for kind in rng.choice(KINDS, 2, replace=False)]
        for a, b in combinations([RESPONSES.index(leaf) for leaf in leaves], 2):
            by_depth[ancestor(a, b)].append((a, b))
    orders = [[own[i] for i in rng.permutation(len(own))] for own in by_depth]
    return [orders[i % DEPTH][(i // DEPTH) % len(orders[i % DEPTH])] for i in range(count)]


def left(pairs: list[Pair], spread: tuple[float, ...]) -> float:
    """Posterior over prior variance of the difference of two rewards."""
    prior = np.array([spread[len(prefix) - 1] ** 2 for prefix in NODES])
    rows = np.array([PATHS[a] - PATHS[b] for a, b in pairs])
    seen = rows * prior
    gain = seen.T @ np.linalg.solve(seen @ rows.T + NOISE**2 * np.eye(len(rows)), seen)
    return variance(np.diag(prior) - gain) / variance(np.diag(prior))


def variance(covariance: np.ndarray) -> float:
    """Mean variance of the difference of two different responses."""
    own = PATHS @ covariance @ PATHS.T
    size = len(own)
    return float(2 * (size * np.trace(own) - own.sum()) / (size * (size - 1)))


def affordable(pairs: list[Pair], segments: int) -> list[Pair]:
    """The first pairs whose labelled segments are within the budget."""
    costs = np.cumsum([2 * (DEPTH - ancestor(a, b)) for a, b in pairs])
    return pairs[: int((costs <= segments).sum())]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    sources = {"chain": 0, "one tree": 1, "four trees": 4}
    table = []
    for name, spread in SPREADS.items():
        for count in (8, 32, 128):
            for budget in ("pairs", "segments"):
                row = [
                    f"{name} segments vary most" if name != "flat" else "all segments vary alike",
                    f"{count} {budget}",
                ]
                for trees in sources.values():
                    values = []
                    for seed in seeds:
                        rng = np.random.default_rng([seed, trees, count])
                        drawn = tree(rng, count, trees) if trees else chain(rng, count)
                        values.append(left(drawn if budget == "pairs" else affordable(drawn, count * 3), spread))
                    found = mean(np.array(values))
                    row.append(f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]")
                row[1] = f"{count} pairs" if budget == "pairs" else f"{count * 3} labelled segments"
                table.append(row)
    print(json.dumps({"columns": ["share of the prior variance left", "budget", *sources], "table": table}, indent=1))


if __name__ == "__main__":
    main()
