"""Extract Method and SWE-RL with tables in place of models, over five seeds.

    python docs/experiments/software_tables.py refactorings     # or patches

Sheets of rows 93 (arXiv:2412.18035) and 17 (arXiv:2502.18449).

``refactorings``: what a text is (extracted, a copy, a function that nothing calls, a changed meaning, a call or a name
that does not resolve, broken syntax) is drawn from a softmax that half of the time copies and extracts in a tenth;
changed meanings are as frequent as right extractions. 200 batches of 16 with the rewards of `refactored` (programs run)
minus the batch's mean. Reported are shares after 20 batches and at the end.

``patches``: files of 12 functions, of which the issue names one; a table draws form, function (by the one that is
named) and content (the true line, another operator, a comment, nonsense), at first the right function in a fifth and
the right content in a quarter. GRPO with groups of 8, 8 a step, 300 steps, with the values of `patch_similarity`.
Reported are groups without spread in the first 10 steps, correct patches after 10 and 300, and how many are correct
when the mean similarity of a step first reaches .85.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.refactored import Refactored
from posttrain.components.tasks.refactorings import Refactorings
from posttrain.components.tasks.repairs import written
from posttrain.grading.edit_blocks import Malformed, changes, edited, edits_of, matcher, similarity
from posttrain.sandbox import find_tier
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Segment, Task, Trajectory

Array = np.ndarray


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis."""
    p: Array = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return p


def drawn(p: Array, rng: np.random.Generator, n: int) -> Array:
    """`n` draws of a distribution."""
    found: Array = rng.choice(len(p), n, p=p)
    return found


# Refactorings

KINDS = ("extracted", "changed", "copied", "not called", "call", "name", "syntax")
FIRST = (0.1, 0.1, 0.5, 0.05, 0.1, 0.1, 0.05)


def texts(task: Task) -> dict[str, str]:
    """A text of each kind."""
    source, answer = task.fields["source"], task.answer or ""
    return {
        "extracted": answer,
        "changed": answer.replace(" return d\n", " return d+1\n"),
        "copied": source,
        "not called": f"{source}\ndef g(a):\n return a\n",
        "call": answer.replace("= g(", "= h("),
        "name": source.replace("return d", "return e"),
        "syntax": source.replace("):", ")"),
    }


@cache
def points() -> dict[str, Array]:
    """What each kind has by each reward, the same for 20 functions."""
    tier, tasks = find_tier().tier, Refactorings(size=20).load()
    rewards = {
        "a point for each check": Refactored(),
        "all checks or nothing": Refactored(partial=False),
        "results as a fourth check": Refactored(execution=True, weakest=tier),
    }
    found = {}
    for name, reward in rewards.items():
        made = tuple(rollout(task, text) for task in tasks for text in texts(task).values())
        scores = asyncio.run(reward.score(Group(key="all", trajectories=made), RewardContext()))
        values = np.array([score.value for score in scores]).reshape(len(tasks), len(KINDS))
        assert (values == values[0]).all(), "a kind has the same for every function"
        found[name] = values[0]
    return found


def rollout(task: Task, text: str) -> Trajectory:
    """A completion of a task."""
    segment = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text)
    return Trajectory(task=task, segments=(segment,), stop_reason="stop")


def refactorings(name: str, seed: int) -> list[float]:
    """Three checks after 20 batches and 200, copies, and equal results where there are three checks, in percent."""
    rng, logits, early = np.random.default_rng([seed, 93]), np.log(np.array(FIRST)), 0.0
    for step in range(200):
        p = softmax(logits)
        early = 100 * float(p[:2].sum()) if step == 20 else early
        kinds = drawn(p, rng, 16)
        own = points()[name][kinds]
        advantage = (own - own.mean()) / 16
        logits = logits + np.bincount(kinds, advantage, len(KINDS)) - advantage.sum() * p
    p = 100 * softmax(logits)
    return [early, float(p[0] + p[1]), float(p[2]), float(100 * p[0] / (p[0] + p[1]))]


# Patches

FUNCTIONS, CONTENTS = 12, 4
LINES = [f"def f{name}(x): return x-{number + 3}" for number, name in enumerate("abcdeghijkmn")]
FILE = "\n".join([*LINES, ""])
RATIO = matcher()


def content(place: int, kind: int) -> str:
    """A line in place of another: the true one, another operator, a comment, nonsense."""
    line = LINES[place]
    return (line.replace("-", "+"), line.replace("-", "*"), f"{line}  # fixed", "pass  # qwertz")[kind]


@cache
def near(named: int, place: int, kind: int) -> float:
    """The reward of an edit with the form."""
    oracle = {"a.py": FILE.replace(LINES[named], content(named, 0))}
    try:
        after = edited({"a.py": FILE}, edits_of(written("a.py", LINES[place], content(place, kind))))
    except Malformed:
        return -1.0
    return similarity(changes({"a.py": FILE}, after), changes({"a.py": FILE}, oracle), RATIO)


def patches(name: str, seed: int) -> list[float]:
    """Groups without spread in the first 10 steps, correct patches after 10 and 300, and where .85 is reached."""
    rng = np.random.default_rng([seed, 17])
    form, where, what = np.log([0.8, 0.2]), np.zeros((FUNCTIONS, FUNCTIONS)), np.zeros(CONTENTS)
    where[np.arange(FUNCTIONS), np.arange(FUNCTIONS)] = np.log(0.2 / 0.8 * (FUNCTIONS - 1))
    flat, early, high = 0, 0.0, float("nan")
    for step in range(300):
        right = 100 * float(softmax(form)[0] * np.mean(np.diag(softmax(where))) * softmax(what)[0])
        early = right if step == 10 else early
        total = []
        for named in rng.integers(FUNCTIONS, size=8).tolist():
            forms, places, kinds = (drawn(softmax(t), rng, 8) for t in (form, where[named], what))
            values = [near(named, p, k) if f == 0 else -1.0 for f, p, k in zip(forms, places, kinds, strict=True)]
            own = np.array(values if name == "similarity" else [v if v in (-1.0, 1.0) else 0.0 for v in values])
            total += values
            if np.ptp(own) < 1e-9:
                flat += step < 10
                continue
            advantage = (own - own.mean()) / (own.std() + 1e-6) / 8
            for table, picks in ((form, forms), (where[named], places), (what, kinds)):
                table += np.bincount(picks, advantage, len(table))  # the advantages of a group sum to 0
        if np.isnan(high) and np.mean(total) >= 0.85:
            high = right
    right = 100 * float(softmax(form)[0] * np.mean(np.diag(softmax(where))) * softmax(what)[0])
    return [100 * flat / (10 * 8), early, right, high]


Run = Callable[[str, int], list[float]]
PARTS: dict[str, tuple[Run, Sequence[str], Sequence[str]]] = {
    "refactorings": (
        refactorings,
        ("a point for each check", "all checks or nothing", "results as a fourth check"),
        ("three checks after 20, %", "after 200, %", "copies, %", "equal results of those with three checks, %"),
    ),
    "patches": (
        patches,
        ("similarity", "exact match"),
        ("groups without spread, %", "correct after 10, %", "after 300, %", "correct where the mean reaches .85, %"),
    ),
}


def shown(values: Sequence[float]) -> str:
    """Mean and interval of seeds that have the number."""
    known = [value for value in values if not np.isnan(value)]
    if len(known) < 2:
        return f"{len(known)} of {len(values)} seeds"
    found = mean(np.array(known))
    return f"{found.value:.1f} [{found.interval.low:.1f}, {found.interval.high:.1f}]"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=sorted(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    run, names, columns = PARTS[given.what]
    table = []
    for name in names:
        found = [run(name, seed) for seed in range(given.seeds)]
        table.append([name, *(shown([own[i] for own in found]) for i in range(len(columns)))])
    print(json.dumps({"columns": [given.what, *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
