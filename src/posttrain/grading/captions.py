"""Labels of captions that arrive late, and what a reward is made of from them: a table, a classifier, a ranking.

Source: ONI, Zheng et al. 2024, arXiv:2410.23022, and its release (facebookresearch/oni at f0f86e8). The state is a JSON
object. `arrive` is called once at the start of a step: labels that are due arrive, the model is fitted, and what is to
be labelled next is returned; `asked` adds its labels, which are due some steps later.

Differs: classifier and ranking are linear in the counts of a text's pieces (`posttrain.grading.text_pieces`), not
networks over characters, and 32 updates of all labels are of the whole set, by plain gradient descent.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, Literal

import numpy as np

from posttrain.grading.text_pieces import WIDTH, Vector, embedded

Kind = Literal["table", "classifier", "ranking"]
UPDATES: Final = 32
"""Gradient steps after each arrival."""
RATE: Final = 10.0
"""Their size."""
LOWEST: Final = -0.5
"""Normalized ranking rewards below it are 0."""
MOST_LABELS: Final = 25_000
"""Labels from which on the model stays as it is."""
MOST_QUEUED: Final = 10_000
"""Captions that wait for a label; older ones are dropped."""
Pair = tuple[str, str]


def arrive(state: dict[str, Any], kind: Kind, *, step: int, most: int, once: bool, seed: int) -> list[str] | list[Pair]:
    """Take in due labels and the captions of the step before, and return what to request a label of, newest first."""
    due = [own for own in state.get("pending", []) if own[0] <= step]
    state["pending"] = [own for own in state.get("pending", []) if own[0] > step]
    labels = state.setdefault("labels", [])
    labels += [own[1:] for own in sorted(due, key=repr)]
    new = Counter({caption: int(count) for caption, count in sorted(state.pop("new", {}).items())})
    seen = state.setdefault("seen", {})
    for caption in new:
        seen[caption] = seen.pop(caption, 0) + new[caption]
    while len(seen) > MOST_QUEUED:
        del seen[next(iter(seen))]
    if due and len(labels) <= MOST_LABELS:
        fit(state, kind)
    if kind == "ranking":
        _count(state, new)
        return _pairs(state, step=step, most=most, once=once, seed=seed)
    known = {own[0] for own in labels}
    waiting = {own[1] for own in state["pending"]} if once else set()
    return [caption for caption in reversed(seen) if caption not in known | waiting][:most]


def asked(state: dict[str, Any], items: Sequence[Any], labels: Sequence[float | None], *, due: int) -> None:
    """Store labels that arrive at the step `due`; those that are None were not given."""
    state["requests"] = state.get("requests", 0) + len(items)
    given = zip(items, labels, strict=True)
    state["pending"] += [[due, *_flat(item), float(label)] for item, label in given if label is not None]


def fit(state: dict[str, Any], kind: Kind) -> None:
    """Move the model's weights by all labels so far."""
    labels = state["labels"]
    if kind == "table":
        state["table"] = dict(labels)
        return
    own = np.asarray(state.get("weights", np.zeros(WIDTH + 1)), np.float64)
    if kind == "classifier":
        rows = np.stack([_with_one(caption) for caption, _ in labels])
    else:
        rows = np.stack([_with_one(first) - _with_one(second) for first, second, _ in labels])
    target = np.array([label[-1] for label in labels])
    for _ in range(UPDATES):
        p = 1.0 / (1.0 + np.exp(-np.clip(rows @ own, -30.0, 30.0)))
        own = own - RATE * (rows.T @ (p - target)) / len(rows)
    state["weights"] = own.tolist()


def reward_of(state: Mapping[str, Any], kind: Kind, caption: str, threshold: float) -> float:
    """The reward of a caption by the labels so far; 0 where nothing is known."""
    if kind == "table":
        return float(state.get("table", {}).get(caption, 0.0))
    if "weights" not in state:
        return 0.0
    value = float(np.asarray(state["weights"]) @ _with_one(caption))
    if kind == "classifier":
        return float(1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, value)))) > threshold)
    count, mean, squares = state.get("moments", (0, 0.0, 0.0))
    if count < 2 or squares <= 0.0:
        return 0.0
    z = (value - mean) / math.sqrt(squares / count)
    return z if z > LOWEST else 0.0


def decayed(values: Mapping[str, float], captions: Sequence[str], exponent: float) -> list[float]:
    """Each caption's reward over the power of its number of occurrences in this list so far, this one included."""
    counts: Counter[str] = Counter()
    found = []
    for caption in captions:
        counts[caption] += 1
        found.append(values[caption] * counts[caption] ** -exponent)
    return found


def _flat(item: str | Pair) -> list[str]:
    return [item] if isinstance(item, str) else list(item)


def _with_one(caption: str) -> Vector:
    return np.append(embedded(caption), 1.0)


def _count(state: dict[str, Any], new: Mapping[str, int]) -> None:
    """Running mean and sum of squares of what the model gives to everything that was seen."""
    if "weights" not in state:
        return
    count, mean, squares = state.get("moments", (0, 0.0, 0.0))
    own = np.asarray(state["weights"])
    for caption, times in new.items():
        value = float(own @ _with_one(caption))
        count, before = count + times, value - mean
        mean += before * times / count
        squares += times * before * (value - mean)
    state["moments"] = [count, mean, squares]


def _pairs(state: Mapping[str, Any], *, step: int, most: int, once: bool, seed: int) -> list[Pair]:
    """Drawn pairs of distinct captions."""
    captions = list(state["seen"])
    known = {frozenset(own[:2]) for own in state["labels"]}
    waiting = {frozenset(own[1:3]) for own in state["pending"]} if once else set()
    rng = Random(f"captions:{seed}:{step}")
    found: list[Pair] = []
    for _ in range(4 * most if len(captions) > 1 else 0):
        first, second = rng.sample(captions, 2)
        key = frozenset((first, second))
        if key not in known | waiting and len(found) < most:
            found.append((first, second))
            waiting.add(key)
    return found
