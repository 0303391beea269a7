"""Imitation of hinted rollouts at the boundary, of all right hinted ones, and of right plain ones (a table; START).

Half of the problems are easy: an answer at once is right in 0.9, else in 0.05. With a call of the tool it is right in
0.95. A table has the chance of a call by kind of problem: 0.01 at first, and 0.4 for each hint that is put in. Of each
problem there are a greedy plain rollout, eight with a hint and eight plain ones; the filter is the package's. The same
number of kept rollouts, 100, is imitated: the new chance of a call in a kind is the share of calls among its own,
together with 20 rollouts as before. Measured are accuracy and calls without hints on 2,000 new problems, and before
training with 0 to 3 hints. ``episodes`` has the same problems: a call is a turn before that of the answer, and regret
the chance of a right answer that is missed, against a call every time.

    python docs/experiments/hint_rft.py
"""

import argparse
import json

import numpy as np
from episodes import episode_row

from posttrain.components.filters.boundary import Boundary
from posttrain.components.rollouts import Inserted
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Score, Segment, Task, Trajectory

AT_ONCE, WITH_CALL, CALLS, HINTED = (0.9, 0.05), 0.95, 0.01, 0.4
PROBLEMS, ROLLOUTS, IMITATED, BEFORE, FRESH = 400, 8, 100, 20, 2000


def answered(kind: int, calls: float, hints: int, rng: np.random.Generator, greedy: bool = False) -> tuple[bool, bool]:
    """Whether the tool was called, and whether the answer is right; greedy takes what is likelier."""
    chance = 1 - (1 - calls) * (1 - HINTED) ** hints
    called = chance > 0.5 if greedy else bool(rng.random() < chance)
    return called, bool(rng.random() < (WITH_CALL if called else AT_ONCE[kind]))


def rollout(kind: int, number: int, hints: int, played: tuple[bool, bool]) -> Trajectory:
    """As a trajectory, with what the filter reads."""
    called, right = played
    text = f"{number}{' call' if called else ''}"
    return Trajectory(
        task=Task(key=str(kind), prompt=""),
        segments=(Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text),),
        stop_reason="stop",
        score=Score(value=float(right), status="ok" if right else "wrong"),
        facts=(Inserted(insertions=hints, executed=int(called)),),
    )


def kept_by(keep: str, rng: np.random.Generator) -> list[tuple[int, bool]]:
    """Kind and call of the rollouts that the filter keeps, in a random order."""
    groups = []
    for _ in range(PROBLEMS):
        kind = int(rng.integers(2))
        own = [rollout(kind, 0, 0, answered(kind, CALLS, 0, rng, greedy=True))]
        hints = 0 if keep == "plain" else 1
        own += [rollout(kind, i + 1, hints, answered(kind, CALLS, hints, rng)) for i in range(ROLLOUTS)]
        groups.append(Group(key=str(kind), trajectories=tuple(own)))
    _, kept, _ = Boundary(keep=keep)({}, groups)  # type: ignore[arg-type]
    rows = [(int(t.task.key), "call" in t.completion) for group in kept for t in group]
    return [rows[i] for i in rng.permutation(len(rows))]


def imitated(rows: list[tuple[int, bool]]) -> list[float]:
    """Chance of a call by kind after imitation of the first rows."""
    own = rows[:IMITATED]
    counts = [[called for kind, called in own if kind == place] for place in range(2)]
    return [(sum(row) + BEFORE * CALLS) / (len(row) + BEFORE) for row in counts]


def measured(calls: list[float], hints: int, rng: np.random.Generator) -> tuple[list[float], dict[str, float]]:
    """Accuracy, and calls of easy and of hard problems; and the means of the episodes."""
    rows = [(kind, *answered(kind, calls[kind], hints, rng)) for kind in rng.integers(2, size=FRESH)]
    right = float(np.mean([ok for _, _, ok in rows]))
    by_kind = [float(np.mean([called for kind, called, _ in rows if kind == place])) for place in range(2)]
    all_calls = float(np.mean([called for _, called, _ in rows]))
    missed = float(np.mean([0.0 if called else WITH_CALL - AT_ONCE[kind] for kind, called, _ in rows]))
    episodes = {"success": right, "turns": 1 + all_calls, "calls": all_calls, "regret": missed}
    return [right, *by_kind], episodes


def of_seed(seed: int) -> dict[str, tuple[list[float], dict[str, float]]]:
    """All arms."""
    rng = np.random.default_rng(seed)
    found = {f"before, {hints} hints": measured([CALLS, CALLS], hints, rng) for hints in range(4)}
    names = {"plain": "right plain ones", "hinted": "all right hinted ones", "boundary": "boundary (START)"}
    return found | {name: measured(imitated(kept_by(keep, rng)), 0, rng) for keep, name in names.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    by_seed = [of_seed(seed) for seed in range(given.seeds)]
    table, episodes = [], []
    for name in by_seed[0]:
        cells = [mean(np.array(column)) for column in zip(*(own[name][0] for own in by_seed), strict=True)]
        episodes.append(episode_row(name, [own[name][1] for own in by_seed]))
        table.append([name, *(f"{c.value:.2f} [{c.interval.low:.2f}, {c.interval.high:.2f}]" for c in cells)])
    columns = ["imitated", "accuracy", "calls of easy problems", "calls of hard problems"]
    print(json.dumps({"columns": columns, "table": table, "episodes": episodes}, indent=1))


if __name__ == "__main__":
    main()
