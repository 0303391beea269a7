"""Held-out tasks: the problems that evaluate a run and are never trained on."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from posttrain.datasets.keys import problem
from posttrain.datasets.together import value_of
from posttrain.types import Task

VARIANT_OF: Final = "variant_of"
"""The field that tasks which are variants of one another have in common."""


def holdout(
    tasks: Sequence[Task], count: int, seed: int, together: str | None = None
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Split into (train, held out), both in the order given.

    The `count` problems whose hash of (seed, problem) is smallest are held out, at most half of the distinct ones. The
    order of the tasks does not matter, and adding or removing other tasks moves only problems at the boundary. All
    tasks of the same problem go to the same side, and so do all variants of one (`VARIANT_OF`), so there may be more
    held-out tasks than `count`. With `together`, a field, the problems are its values: `count` of them are held out,
    each with all its tasks.
    """
    problems = [_unit(task, together) for task in tasks]
    ranked = sorted(set(problems), key=lambda text: (_rank(seed, text), text))
    chosen = set(ranked[: min(count, len(ranked) // 2)])
    train = tuple(task for task, text in zip(tasks, problems, strict=True) if text not in chosen)
    held_out = tuple(task for task, text in zip(tasks, problems, strict=True) if text in chosen)
    return train, held_out


def distinct(tasks: Iterable[Task]) -> tuple[tuple[Task, ...], int, int]:
    """One task per problem, in order; the number of merged tasks, and of those with another answer than the first's.

    A problem keeps the key, answer and fields of its first task, and has the demonstrations, preferences and rated
    completions of all.
    """
    first: dict[str, Task] = {}
    merged = conflicts = 0
    for task in tasks:
        kept = first.setdefault(problem(task), task)
        if kept is task:
            continue
        merged += 1
        conflicts += kept.answer != task.answer
        first[problem(task)] = replace(
            kept,
            demonstrations=tuple(dict.fromkeys((*kept.demonstrations, *task.demonstrations))),
            preferences=tuple(dict.fromkeys((*kept.preferences, *task.preferences))),
            rated=tuple(dict.fromkeys((*kept.rated, *task.rated))),
        )
    return tuple(first.values()), merged, conflicts


def exclude(train: Iterable[Task], held_out: Iterable[Task]) -> tuple[tuple[Task, ...], int]:
    """The training tasks without the problems of a separate test set, and the number of removed ones."""
    train = tuple(train)
    tested = {problem(task) for task in held_out}
    kept = tuple(task for task in train if problem(task) not in tested)
    return kept, len(train) - len(kept)


def _unit(task: Task, together: str | None) -> str:
    """What a task goes to a side with: its problem, what it is a variant of, or the value of a field."""
    if together is not None and (value := value_of(task, together)) is not None:
        return f"{together}:{value}"
    of = task.fields.get(VARIANT_OF)
    return problem(task) if of is None else f"{VARIANT_OF}:{of}"


def _rank(seed: int, text: str) -> bytes:
    return hashlib.blake2b(f"{seed}:{text}".encode(errors="surrogatepass"), digest_size=16).digest()
