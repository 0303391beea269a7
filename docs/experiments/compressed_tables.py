"""Compressed thoughts on tables: do thoughts get shorter at equal accuracy, and who loses without classes?

Sheet of row 128 (arXiv:2510.01581) without a language model. 24 tasks, half easy (two needed steps) and half hard
(six); each has four trivial steps. A rollout writes each needed step with probability sigmoid(a), each trivial one with
sigmoid(b), logits of its own for each task; it is correct if all needed steps are written. At the start needed steps of
easy tasks have a = 3, of hard ones 1.5, and all trivial ones b = 1. Each of 60 steps samples every task 8 times. The
gradient is that of group-normalized rewards: 4 for a correct rollout and the length reward of its class.

    lengths     without compressed rollouts
    oracle      attention 1 on needed steps, .05 on trivial ones
    attention   the same, times exp(normal noise of std 1)
    no classes  the noisy attention, with the rate .6 and the scale 1 for all tasks

What is cut out of a correct rollout is a step of it; the answer that is sampled anew is right where all needed steps
are left, and with probability .5 where one is missing, .25 where two are, ... Compressed rollouts are mixed in as the
rollout `compressed` does.

    python docs/experiments/compressed_tables.py --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.components.rewards.class_length import brevity
from posttrain.components.rollouts import Difficulty
from posttrain.components.rollouts.compressed import Eviction
from posttrain.statistics.intervals import mean

TASKS, TRIVIAL, N, STEPS, RATE = 24, 4, 8, 60, 0.3
NEEDED = np.array([2] * (TASKS // 2) + [6] * (TASKS // 2))
WIDTH = 6 + TRIVIAL
SCALES = {"easy": 1.0, "medium": 0.75, "hard": 0.5}
ARMS = ("lengths", "oracle", "attention", "no classes")


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def exact(logit: np.ndarray, exists: np.ndarray) -> dict[str, float]:
    """Accuracy and mean numbers of trivial steps, for easy and hard tasks."""
    p = sigmoid(logit)
    right = np.where(exists[:, :6], p[:, :6], 1.0).prod(1)
    trivial = p[:, 6:].sum(1)
    easy = NEEDED == 2
    return {
        "easy right": float(right[easy].mean()),
        "hard right": float(right[~easy].mean()),
        "easy trivial": float(trivial[easy].mean()),
        "hard trivial": float(trivial[~easy].mean()),
    }


def play(arm: str, seed: int) -> dict[str, float]:
    """Exact numbers at the end, and the share of steps that was cut by class."""
    rng = np.random.default_rng([seed, 1])
    exists = np.concatenate([np.arange(6) < NEEDED[:, None], np.ones((TASKS, TRIVIAL), bool)], 1)
    logit = np.concatenate([np.where(NEEDED == 2, 3.0, 1.5)[:, None].repeat(6, 1), np.ones((TASKS, TRIVIAL))], 1)
    logit = logit + rng.normal(0.0, 0.3, logit.shape)
    eviction = Eviction(rates=(0.6, 0.6, 0.6)) if arm == "no classes" else Eviction()
    history: dict[str, list[list[int]]] = {name: [] for name in SCALES}
    cuts: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(STEPS):
        p = sigmoid(logit)
        now: dict[str, list[int]] = {name: [] for name in SCALES}
        gradient = np.zeros_like(logit)
        for task in range(TASKS):
            written = (rng.random((N, WIDTH)) < p[task]) & exists[task]
            right = (written[:, :6] | ~exists[task, :6]).all(1)
            level = Difficulty.of(int(right.sum()), N, (0.8, 0.3)).difficulty
            pool, correct = list(written), list(right)
            for row in written[right] if arm != "lengths" else ():
                steps = np.flatnonzero(row)
                score = np.where(steps < 6, 1.0, 0.05)
                if arm != "oracle":
                    score = score * np.exp(rng.normal(size=len(steps)))
                cut = sorted(eviction.cut(score, level))
                left = row.copy()
                left[steps[cut]] = False
                missing = int((exists[task, :6] & ~left[:6]).sum())
                pool.append(left)
                correct.append(bool(rng.random() < 0.5**missing))
                if len(steps) > 1:
                    cuts[level == "easy"].append(len(cut) / len(steps))
            kept = rng.permutation(len(pool))[:N]
            rows, ok = np.array(pool)[kept], np.array(correct)[kept]
            lengths = rows.sum(1)
            known = [n for step in history[level][-9:] for n in step] + lengths[ok].tolist()
            scale = 1.0 if arm == "no classes" else SCALES[level]
            reward = np.array(
                [4.0 + scale * brevity(int(n), known) if o else 0.0 for n, o in zip(lengths, ok, strict=True)]
            )
            now[level] += lengths[ok].tolist()
            if reward.std() > 0:
                advantage = (reward - reward.mean()) / (reward.std(ddof=1) + 1e-6)
                gradient[task] = (advantage[:, None] * (rows - p[task]) * exists[task]).mean(0)
        for name, own in now.items():
            history[name].append(own)
        logit = logit + RATE * gradient * N / 4
    shares = {
        f"cut of {name}": float(np.mean(cuts[easy] or [0.0])) for name, easy in (("easy", True), ("others", False))
    }
    return exact(logit, exists) | shares


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table, columns = [], list[str]()
    found = {name: [play(name, seed) for seed in seeds] for name in ARMS}
    for name, rows in found.items():
        columns = list(rows[0])
        cells = []
        for column in columns:
            own = mean([one[column] for one in rows])
            cells.append(f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]")
        table.append([name, *cells])
    print(json.dumps({"columns": ["", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
