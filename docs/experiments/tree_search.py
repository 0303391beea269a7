"""ReST-RL, smallest experiment 2: best of 75 against 15 rounds of 5 of tree search, both with a looked-up value.

A task is a string of five lines, each one of four letters; the policy draws each line evenly, so an attempt is right
once in 1,024. The value of a beginning is looked up: the share of the five lines that is right so far, up to the first
wrong one. Counted is whether the right string is among the 75 samples (`found`), and how many samples were drawn until
then (`samples`, 75 where it was not found).

    .venv/bin/python docs/experiments/tree_search.py --seeds 20

MEASURED
"""

import argparse
import asyncio
import json

import numpy as np

from posttrain.engines import Sampling
from posttrain.search import Found, Search
from posttrain.search.best_of import BestOf
from posttrain.search.tree import Tree
from posttrain.statistics.intervals import bootstrap_mean
from posttrain.types import Completion, Task

LETTERS, LENGTH, SAMPLES = "abcd", 5, 75
SEARCHES: dict[str, Search] = {"best_of": BestOf(n=SAMPLES), "tree": Tree(iterations=15, samples=5)}


class Writer:
    """Draws letters evenly, one a line, and knows what a beginning is worth. Tokens are bytes, 0 is the end."""

    context = 64

    def __init__(self, right: str, *key: int) -> None:
        self._right = "\n".join(right)
        self._rng = np.random.Generator(np.random.Philox(key=list(key)))

    def encode(self, prompt: object) -> np.ndarray:
        return np.array(list(str(prompt).encode()), np.int64)

    def decode(self, token_ids: np.ndarray) -> str:
        return bytes(int(i) for i in token_ids if i).decode()

    def uniform(self) -> float:
        return float(self._rng.random())

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Sampling) -> list[Completion]:
        left = LENGTH - self.decode(token_ids).count("\n")
        return [self._write("\n".join(self._rng.choice(list(LETTERS), left))) for _ in range(n)]

    def _write(self, text: str) -> Completion:
        ids = np.array([*text.encode(), 0], np.int64)
        logp = np.zeros(len(ids), np.float32)
        return Completion(token_ids=ids, logp=logp, stop_reason="stop", version=0, text=text)

    async def score(self, token_ids: np.ndarray) -> float:
        written = self.decode(token_ids).removeprefix("P:").rstrip("\n").split("\n")
        agree = [a == b for a, b in zip(written, self._right.split("\n"), strict=False)]
        return (agree.index(False) if False in agree else len(agree)) / LENGTH


def samples_until(found: Found, right: str) -> int:
    """Attempts until the right one, or all of them."""
    hits = [i + 1 for i, t in enumerate(found.attempts) if t.completion == "\n".join(right)]
    return hits[0] if hits else SAMPLES


def one_seed(seed: int, tasks: int) -> dict[str, dict[str, float]]:
    """Share of tasks whose right string is found, and the mean of samples until then, by each search."""
    rows: dict[str, list[tuple[bool, int]]] = {name: [] for name in SEARCHES}
    for number in range(tasks):
        right = "".join(np.random.default_rng([seed, number]).choice(list(LETTERS), LENGTH))
        for place, (name, search) in enumerate(SEARCHES.items()):
            writer = Writer(right, seed * 1000 + number, place)
            found = asyncio.run(search.search(Task(key="t", prompt="P:"), {"policy": writer, "value": writer}))
            rows[name].append((found.best.completion == "\n".join(right), samples_until(found, right)))
    return {
        name: {"found": float(np.mean([f for f, _ in own])), "samples": float(np.mean([n for _, n in own]))}
        for name, own in rows.items()
    }


def main() -> None:
    """Print the table as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=20)
    arguments = parser.parse_args()
    rows = [one_seed(seed, arguments.tasks) for seed in range(arguments.seeds)]
    table = {}
    for measure in ("found", "samples"):
        gaps = [row["tree"][measure] - row["best_of"][measure] for row in rows]
        means = {name: round(float(np.mean([row[name][measure] for row in rows])), 3) for name in SEARCHES}
        table[measure] = {**means, "difference": round(float(np.mean(gaps)), 3), "interval_95": bounds(gaps)}
    print(json.dumps({"seeds": arguments.seeds, "tasks": arguments.tasks, **table}, indent=2))


def bounds(gaps: list[float]) -> list[float]:
    """95 % interval of the mean difference over seeds."""
    return [round(x, 3) for x in INTERVAL(gaps)]


if __name__ == "__main__":
    main()
