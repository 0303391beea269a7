"""Per-step DPO: is the fatal step found, and is a cut answer a better rejected one than a whole one?

    python docs/experiments/first_pit.py --seeds 20

Sheet of row 241 (arXiv:2406.14532). An answer has five steps, each right or a slip, with a remark before it or without,
and is correct where no step is a slip, unless the model recovers afterwards.

The first table: answers with one fatal step among five, whose prefixes before it are continued correctly with
probability 0.6, and after it with `p`. Share of 1,000 answers a seed whose fatal step is found from n continuations of
each prefix, best of five, by the lowest Q or by its largest fall; and the advantage of a step without effect before it.

The second: a table policy whose steps are right with probability 0.75 and have a remark with 0.9. 200 pairs of a
correct and an incorrect answer of its own train it for 100 steps of Adam: likelihood of the correct ones (`rft`), DPO
with whole answers, DPO with the incorrect one cut after its first slip. Reported are the exact probability of a correct
answer, 0.237 at first, and the rate of remarks, by step size.
"""

import argparse
import json

import numpy as np
import torch

from posttrain.components.pairings.first_pit import best_of
from posttrain.components.preferences import Pairs
from posttrain.components.preferences.dpo import DPO
from posttrain.signals import logp_of
from posttrain.statistics.intervals import mean

STEPS, RIGHT, REMARK, PAIRS, UPDATES, RATES = 5, 0.75, 0.9, 200, 100, (0.01, 0.03, 0.1)
BEFORE, BEST = 0.6, 5


def found(after: float, n: int, seed: int, answers: int = 1000) -> tuple[float, float, float]:
    """Shares of fatal steps that are found by the lowest Q and by its largest fall, and the advantage of a remark."""
    rng = np.random.Generator(np.random.Philox(key=[seed, n]))
    lowest, drop, remark = [], [], []
    for _ in range(answers):
        pit = int(rng.integers(1, STEPS - 1))
        p = np.where(np.arange(STEPS) < pit, BEFORE, after)
        p[-1] = 0.0  # the answer ends there, and is incorrect
        q = np.array([best_of(n, int(k), min(BEST, n)) for k in rng.binomial(n, p)])
        first = best_of(n, int(rng.binomial(n, BEFORE)), min(BEST, n))
        fall = np.diff(q, prepend=first)
        lowest.append(int(np.argmin(q)) == pit)
        drop.append(int(np.argmin(fall)) == pit)
        remark.append(float(fall[0]))
    return float(np.mean(lowest)), float(np.mean(drop)), float(np.mean(remark))


class Policy:
    """Logits of a remark ([step]) and of a right step after one or without ([step, 2])."""

    def __init__(self) -> None:
        self.remark = torch.full((STEPS,), float(np.log(REMARK / (1 - REMARK))), dtype=torch.float64)
        self.right = torch.full((STEPS, 2), float(np.log(RIGHT / (1 - RIGHT))), dtype=torch.float64)
        self.parameters = [self.remark.requires_grad_(), self.right.requires_grad_()]

    def logp(self, remark: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """[P, step] log-probability of what each step is (remark and right, 0 or 1)."""
        logsigmoid = torch.nn.functional.logsigmoid
        of_remark = logsigmoid(self.remark * (2 * remark - 1))
        logits = torch.where(remark == 1, self.right[:, 1], self.right[:, 0])
        return of_remark + logsigmoid(logits * (2 * right - 1))

    def outcome(self) -> tuple[float, float]:
        """Probability of a correct answer, and the rate of remarks."""
        with torch.no_grad():
            remark, right = self.remark.sigmoid(), self.right.sigmoid()
            steps = remark * right[:, 1] + (1 - remark) * right[:, 0]
            return float(steps.prod()), float(remark.mean())


def drawn(rng: np.random.Generator, correct: bool) -> tuple[np.ndarray, np.ndarray]:
    """Remarks and right steps of answers of the policy at the start, all correct or all incorrect."""
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    while len(rows) < PAIRS:
        right = rng.random(STEPS) < RIGHT
        if right.all() == correct:
            rows.append((rng.random(STEPS) < REMARK, right))
    return np.array([a for a, _ in rows], float), np.array([b for _, b in rows], float)


def trained(arm: str, seed: int) -> dict[float, tuple[float, float]]:
    """The outcome by step size."""
    rng = np.random.Generator(np.random.Philox(key=[seed, 7]))
    chosen, rejected = ([torch.tensor(x) for x in drawn(rng, correct)] for correct in (True, False))
    kept = torch.ones(PAIRS, STEPS, dtype=torch.float64)
    if arm == "cut":
        pit = (rejected[1] == 0).double().argmax(1)
        kept = (torch.arange(STEPS) <= pit[:, None]).double()
    results = {}
    for rate in RATES:
        policy = Policy()
        optimizer = torch.optim.Adam(policy.parameters, lr=rate)
        reference = None
        for _ in range(UPDATES):
            both = torch.stack([policy.logp(*chosen).sum(1), (policy.logp(*rejected) * kept).sum(1)], 1)
            reference = both.detach() if reference is None else reference
            known = {logp_of("reference"): reference}
            pairs = Pairs(logp_P2=both, length_P2=torch.ones_like(both), reference_logp_P2=known)
            loss = -both[:, 0].mean() if arm == "rft" else DPO()(pairs).loss_P.mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        results[rate] = policy.outcome()
    return results


def said(values: list[float], digits: int = 3) -> str:
    """A mean with its 95 % interval."""
    own = mean(values)
    return f"{own.value:.{digits}f} [{own.interval.low:.{digits}f}, {own.interval.high:.{digits}f}]"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    table = []
    for after in (0.0, 0.05):
        for n in (5, 10):
            rows = [found(after, n, seed) for seed in seeds]
            table.append([after, n, *(said([row[i] for row in rows]) for i in range(3))])
    print(json.dumps({"columns": ["p", "n", "lowest Q", "largest fall", "advantage of a remark"], "table": table}))
    for arm in ("rft", "whole", "cut"):
        rows = [trained(arm, seed) for seed in seeds]
        for rate in RATES:
            print(json.dumps([arm, rate, *(said([row[rate][i] for row in rows]) for i in range(2))]))


if __name__ == "__main__":
    main()
