"""Held-out tasks: which problems judge a run and are never trained on."""

import hashlib
from collections.abc import Iterable, Sequence

from posttrain.datasets.keys import problem
from posttrain.types import Task


def holdout(tasks: Sequence[Task], count: int, seed: int) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Split into (train, held out), both in the order given.

    The `count` problems whose hash of (seed, problem) is smallest are held out, at most half of the distinct ones.
    The order of the tasks does not matter, and adding or removing other tasks moves a problem across only when it is
    at the very edge. All tasks that ask the same problem go to the same side, so there may be more held-out tasks
    than `count`.
    """
    asked = [problem(task) for task in tasks]
    ranked = sorted(set(asked), key=lambda text: (_rank(seed, text), text))
    chosen = set(ranked[: min(count, len(ranked) // 2)])
    train = tuple(task for task, text in zip(tasks, asked, strict=True) if text not in chosen)
    held_out = tuple(task for task, text in zip(tasks, asked, strict=True) if text in chosen)
    return train, held_out


def exclude(train: Iterable[Task], held_out: Iterable[Task]) -> tuple[tuple[Task, ...], int]:
    """The training tasks that ask nothing that a separate test set asks, and how many were removed."""
    train = tuple(train)
    tested = {problem(task) for task in held_out}
    kept = tuple(task for task in train if problem(task) not in tested)
    return kept, len(train) - len(kept)


def _rank(seed: int, text: str) -> bytes:
    return hashlib.blake2b(f"{seed}:{text}".encode(errors="surrogatepass"), digest_size=16).digest()
