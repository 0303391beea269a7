"""Values of a search on a known tree, and what a margin outside beta does. Sheet of row 150 (arXiv:2409.08642).

A tree of three levels with 5, 3 and 3 children, which are sampled evenly. A leaf is correct with a rate of .9 or .1,
which its first two steps decide; how many second steps are good follows the first step (Beta(.5, .5)).

    values   the search of `cpl` with 200 expansions, in which every leaf that is made is correct with its rate; rank
             correlation and correlation of Q with the exact value of the first two levels' nodes, and the share of
             pairs whose exact values are in the order of their Q.
    margins  a table with one logit for each child: 400 steps of gradient descent on three pairs of siblings whose
    values
             differ by 1.6, by .8 and by .1, by DPO and by Step-APO (beta .3, target 1). Log-ratio gap of each pair.
    policy   tables trained on the search's pairs, 200 steps: probability of a correct leaf.

Means over 20 trees of each seed; the step size is 2.

    python docs/experiments/plan_tree.py --seeds 5
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from posttrain.components.pairings._plans import Node, grow, pairs_of
from posttrain.statistics.intervals import mean
from posttrain.statistics.ranking import rank_correlation

BRANCHES, TREES, RATE = (5, 3, 3), 20, 2.0
Way = tuple[int, ...]


def rates_of(rng: np.random.Generator) -> np.ndarray:
    """[5, 3, 3] probability that a leaf is correct."""
    good = rng.random(BRANCHES[:2]) < rng.beta(0.5, 0.5, BRANCHES[:1])[:, None]
    return np.repeat(np.where(good, 0.9, 0.1)[:, :, None], BRANCHES[2], axis=2)


def searched(rates: np.ndarray, seed: int, iterations: int = 200) -> Node[Way]:
    """The tree of a search, in which a child of the last level is a solution."""
    rng = np.random.default_rng([seed, 2])

    async def expand(node: Node[Way]) -> Sequence[Node[Way]]:
        level = len(node.state)
        made = []
        for i in np.unique(rng.integers(0, BRANCHES[level], 5 if level == 0 else 3)).tolist():
            way = (*node.state, i)
            last = len(way) == len(BRANCHES)
            outcome = (1.0 if rng.random() < rates[way] else -1.0) if last else None
            made.append(Node(state=way, prior=1.0 / BRANCHES[level], outcome=outcome))
        return made

    async def estimate(_: Node[Way]) -> float:
        return 0.0

    root: Node[Way] = Node(state=())
    asyncio.run(
        grow(root, iterations=iterations, exploration=1.5, expand=expand, estimate=estimate, uniform=rng.random)
    )
    return root


def exact(rates: np.ndarray, way: Way) -> float:
    """Expected outcome of a prefix, in [-1, 1]."""
    return float(2.0 * rates[way].mean() - 1.0)


def trained(pairs: Sequence[tuple[Way, Way, float]], target: float, steps: int, rate: float) -> dict[Way, np.ndarray]:
    """Logits of the children of every prefix, from even ones, after gradient descent on pairs of siblings."""
    logits: dict[Way, np.ndarray] = {}
    for a, _, _ in pairs:
        logits.setdefault(a[:-1], np.zeros(BRANCHES[len(a) - 1]))
    beta = 0.3
    for _ in range(steps):
        gradient = {way: np.zeros_like(x) for way, x in logits.items()}
        for a, b, gap in pairs:
            own = logits[a[:-1]]
            z = beta * (own[a[-1]] - own[b[-1]]) - target * gap
            pull = beta / (1.0 + np.exp(z))
            gradient[a[:-1]][a[-1]] += pull
            gradient[a[:-1]][b[-1]] -= pull
        for way, own in gradient.items():
            logits[way] = logits[way] + rate * own
    return logits


def success(rates: np.ndarray, logits: dict[Way, np.ndarray], way: Way = ()) -> float:
    """Probability of a correct leaf below a prefix."""
    if len(way) == len(BRANCHES):
        return float(rates[way])
    own = logits.get(way, np.zeros(BRANCHES[len(way)]))
    p = np.exp(own - own.max())
    return float(sum(p[i] / p.sum() * success(rates, logits, (*way, i)) for i in range(len(own))))


def play(seed: int) -> dict[str, float]:
    """The mean of all numbers over the trees of a seed."""
    trees = [tree(seed, number) for number in range(TREES)]
    return {name: float(np.mean([one[name] for one in trees if name in one])) for name in trees[0]}


def tree(seed: int, number: int) -> dict[str, float]:
    """All numbers of one tree; without pairs in an order, none of their share."""
    rates = rates_of(np.random.default_rng([seed, 1, number]))
    root = searched(rates, 1000 * seed + number)
    nodes = [node for node in root.below() if 0 < len(node.state) < len(BRANCHES) and node.visits]
    q, value = [n.q for n in nodes], [exact(rates, n.state) for n in nodes]
    found: dict[str, Any] = {"rank correlation of Q": rank_correlation(q, value)}
    found["correlation of Q"] = float(np.corrcoef(q, value)[0, 1])
    pairs = [(a.state, b.state, qa - qb) for n in root.below() for a, b, qa, qb in pairs_of(n.children, 0.3)]
    order = [exact(rates, a) > exact(rates, b) for a, b, _ in pairs if exact(rates, a) != exact(rates, b)]
    found |= {"pairs": float(len(pairs))} | ({"pairs in order": float(np.mean(order))} if order else {})
    known: list[tuple[Way, Way, float]] = [((0,), (1,), 1.6), ((0, 0), (0, 1), 0.8), ((1, 0), (1, 1), 0.1)]
    for name, target in (("DPO", 0.0), ("Step-APO", 1.0)):
        logits = trained(known, target, 400, RATE)
        for a, b, gap in known:
            found[f"{name}, gap {gap:g}"] = float(logits[a[:-1]][a[-1]] - logits[a[:-1]][b[-1]])
        found[f"{name}, correct"] = success(rates, trained(pairs, target, 200, RATE))
    return {**found, "before": success(rates, {})}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    found = [play(seed) for seed in range(parser.parse_args().seeds)]
    table = []
    for name in found[0]:
        own = mean([one[name] for one in found])
        table.append([name, f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]"])
    print(json.dumps({"columns": ["", "mean and 95 % interval"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
