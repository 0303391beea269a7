"""A bank of cases for a reader whose skill never changes: which cases are shown decides its success (Memento).

There are 30 types of task. A bank starts with two right cases of each type, and every task that is done is added, right
or wrong. The reader follows the plan of one of the right cases that are shown: it succeeds in 0.9 if that is of the
task's type, otherwise in 0.2, as without a case. Vectors of 16 numbers are a centre of the type plus noise, so that the
likeliest first case has the right type in two of five tasks. Of 500 tasks the first 150 are read by likeness and make
the log; the selector is trained on it, and again every 50 tasks, from then on with its own choices. With a label for
all shown cases, as released, or for the followed one alone. In the last arms a fifth of the first cases has the plan of
another type.

    python docs/experiments/case_bank.py
"""

import argparse
import json
from dataclasses import dataclass, field

import numpy as np

from posttrain.statistics.case_bank import Case, Values, best, features, fitted, likeness
from posttrain.statistics.intervals import mean

TYPES, FIRST, TASKS, SIZE, NOISE, STYLE, START, EVERY = 30, 60, 500, 16, 0.1, 0.5, 150, 50
KIND = np.arange(SIZE) < SIZE // 2


@dataclass(kw_only=True)
class Bank:
    """Cases with the type of their plan, and the log of what was shown."""

    cases: list[Case] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def add(self, vector: np.ndarray, plan: np.ndarray, kind: int, right: bool) -> None:
        """Write a case, whose second vector is of both."""
        self.cases.append(Case(query="", plan="", right=right, key_D=vector, both_D=unit(vector + plan)))
        self.kinds.append(kind)


def unit(vector: np.ndarray) -> np.ndarray:
    """Of length 1."""
    scaled: np.ndarray = vector / np.linalg.norm(vector)
    return scaled


def success(read: str, k: int, seed: int, poison: float = 0.0, joint: bool = True) -> list[float]:
    """Success in tasks 151 to 300 and in the last 200."""
    rng = np.random.default_rng(seed)
    centres = [unit(rng.normal(size=SIZE) * KIND) for _ in range(TYPES)]

    def query(kind: int) -> np.ndarray:
        return unit(centres[kind] + rng.normal(size=SIZE) * np.where(KIND, NOISE, STYLE))

    bank, values, selector, won = Bank(), Values(), None, []
    for place in range(FIRST):
        kind = place % TYPES
        plan = kind if rng.random() >= poison else int(rng.integers(TYPES))
        bank.add(query(kind), centres[plan], plan, True)
    for number in range(TASKS):
        kind = int(rng.integers(TYPES))
        vector = query(kind)
        if read == "learned" and number >= START:
            if number % EVERY == 0:
                selector = fitted(np.array(bank.rows), np.array(bank.labels), seed)
            assert selector is not None, "it was trained at the start"
            shown = best(selector.scores(vector, bank.cases), k)
        elif read == "values" and number >= START:
            shown = values.drawn(values.q(vector, len(bank.cases)), k, rng)
        else:
            shown = best(likeness(vector, bank.cases), k)
        right = [place for place in shown if bank.cases[place].right]
        followed = right[int(rng.integers(len(right)))] if right else None
        plan = int(rng.integers(TYPES)) if followed is None else bank.kinds[followed]
        ok = bool(rng.random() < (0.9 if followed is not None and plan == kind else 0.2))
        for place in shown if joint else ([] if followed is None else [followed]):
            bank.rows.append(features(vector, [bank.cases[place]])[0])
            bank.labels.append(int(ok))
            values.stored(place, vector, float(ok))
        bank.add(vector, centres[plan], plan, ok)
        won.append(ok)
    return [float(np.mean(won[START:300])), float(np.mean(won[300:]))]


ARMS: dict[str, tuple[str, int, float, bool]] = {
    "no memory": ("likeness", 0, 0.0, True),
    **{f"likeness, {k} cases": ("likeness", k, 0.0, True) for k in (1, 4, 16)},
    **{f"learned, {k} cases": ("learned", k, 0.0, True) for k in (1, 4, 16)},
    "learned, 4 cases, label of the followed one": ("learned", 4, 0.0, False),
    "values, 4 cases": ("values", 4, 0.0, True),
    "likeness, 4 cases, a fifth wrong": ("likeness", 4, 0.2, True),
    "learned, 4 cases, a fifth wrong": ("learned", 4, 0.2, True),
    "values, 4 cases, a fifth wrong": ("values", 4, 0.2, True),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    table = []
    for name, (read, k, poison, joint) in ARMS.items():
        rows = [success(read, k, seed, poison, joint) for seed in range(given.seeds)]
        cells = [mean(np.array(column)) for column in zip(*rows, strict=True)]
        table.append([name, *(f"{c.value:.2f} [{c.interval.low:.2f}, {c.interval.high:.2f}]" for c in cells)])
    print(json.dumps({"columns": ["cases shown", "tasks 151 to 300", "tasks 301 to 500"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
