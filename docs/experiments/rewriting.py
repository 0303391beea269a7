"""EGSR: is a solution in the policy's own words learned with less divergence than the expert's?

A table of 1,000 completions of which two are correct: the expert's, with a probability of 1e-4, and a wording of the
policy's own, of 0.003, which it finds when it sees the expert's. In each step eight rollouts are sampled; where all
fail, the last one is replaced by the rewriting (EGSR) or the expert's solution (as LUFFY does), and the gradient of
group-normalized rewards is taken; `sft` takes that of the likelihood of the expert's solution in every step. All end
when half of the answers are correct. Reported are the divergence from the start, KL(policy || start) in nats, and the
number of steps.

    python docs/experiments/rewriting.py --seeds 20
"""

import argparse
import json

import numpy as np

from posttrain.statistics.intervals import mean

COMPLETIONS, ROLLOUTS, RATE, GOAL = 1000, 8, 0.5, 0.5
EXPERT, OWN = 1e-4, 3e-3
ARMS = ("sft", "expert", "rewritten")


def play(arm: str, seed: int) -> tuple[float, int]:
    """KL from the start, and steps, when the goal is reached."""
    rng = np.random.Generator(np.random.Philox(key=[seed, 0]))
    others = rng.exponential(size=COMPLETIONS - 2)
    start = np.concatenate([[EXPERT, OWN], others / others.sum() * (1.0 - EXPERT - OWN)])
    rng, logits, steps = np.random.Generator(np.random.Philox(key=[seed, 1])), np.log(start), 0
    while True:
        p = np.exp(logits - logits.max())
        p /= p.sum()
        if p[:2].sum() >= GOAL:
            return float((p * np.log(p / start)).sum()), steps
        steps += 1
        logits = logits + RATE * step(arm, p, rng)


def step(arm: str, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The gradient of one step in the logits."""
    if arm == "sft":
        return np.eye(1, COMPLETIONS, 0)[0] - p
    drawn = rng.choice(COMPLETIONS, ROLLOUTS, p=p)
    if (drawn > 1).all():
        drawn[-1] = 0 if arm == "expert" else 1
    reward = (drawn <= 1).astype(float)
    if reward.std() == 0.0:
        return np.zeros(COMPLETIONS)
    advantage = (reward - reward.mean()) / reward.std(ddof=1)
    pushed = np.bincount(drawn, weights=advantage / ROLLOUTS, minlength=COMPLETIONS)
    return pushed - p * pushed.sum()


def said(values: list[float], digits: int) -> str:
    """A mean with its 95 % interval."""
    found = mean(values)
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    table = []
    for arm in ARMS:
        found = [play(arm, seed) for seed in seeds]
        table.append([arm, said([kl for kl, _ in found], 2), said([float(n) for _, n in found], 0)])
    print(json.dumps({"columns": ["learned from", "KL from the start", "steps"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
