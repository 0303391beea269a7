"""Draws of tasks by their places in the pool, as functions of (seed, step) or (seed, epoch) alone."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from posttrain.types import Group, Task

Places = NDArray[np.int64]
Reals = NDArray[np.float64]


def generator(seed: int, step: int, refill: int, purpose: int) -> np.random.Generator:
    """The generator of a choice; several in one step differ by their `purpose`."""
    return np.random.default_rng([seed, purpose, step, *[refill] * (refill > 0)])


def shuffled_epochs(size: int, begin: int, count: int, key: Sequence[int]) -> Places:
    """Places `begin` to `begin + count` of endless epochs, each with all of `size` places in a new order."""
    parts = [np.zeros(0, np.int64)]
    end = begin + count
    for epoch in range(begin // size, -(-end // size)):
        order = np.random.default_rng([*key, epoch]).permutation(size)
        start = epoch * size
        parts.append(order[max(begin - start, 0) : end - start])
    return np.concatenate(parts)


def candidates(size: int, position: int, wanted: int, count: int, key: Sequence[int]) -> tuple[int, Places]:
    """The next distinct candidates, `wanted` of them or the whole pool, and the position after them.

    A pool smaller than the `count` that is chosen gives tasks twice.
    """
    if count > size:
        return position + count, shuffled_epochs(size, position, count, key)
    drawn = shuffled_epochs(size, position, min(max(wanted, count), size), key)
    _, first = np.unique(drawn, return_index=True)
    kept = drawn[np.sort(first)]
    if len(kept) < count:  # the end of one epoch and the start of the next have tasks in common
        others = np.setdiff1d(shuffled_epochs(size, position + len(drawn), size, key), kept)
        kept = np.concatenate([kept, others[: count - len(kept)]])
    return position + len(drawn), kept


def remember(state: Mapping[str, int], pool: Sequence[Task], places: Iterable[int]) -> dict[str, int]:
    """The places of a step's tasks by key, with those of its earlier choices, for `observe`."""
    return {**state, **{pool[int(place)].key: int(place) for place in places}}


def spread_share(groups: Sequence[Group]) -> float | None:
    """Share of the groups with unequal rewards, of those with a scored rollout."""
    values = [{t.score.value for t in g if t.score is not None and t.score.status != "error"} for g in groups]
    kept = [own for own in values if own]
    return sum(len(own) > 1 for own in kept) / len(kept) if kept else None
