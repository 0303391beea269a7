"""Lists of scores by documents, right where every relevant document is above every other one, and edits of them."""

from collections.abc import Iterator
from random import Random

import numpy as np

from posttrain.components.rollouts import Pointwise
from posttrain.types import Segment, Task, Trajectory

Scores = tuple[int | None, ...]


def right(task: Task, scores: Scores) -> bool:
    """Whether the relevant documents, and these alone, are on top, none of them equal to another one."""
    marked = list(zip(task.fields["relevant"], (-1 if own is None else own for own in scores), strict=True))
    own, others = ([score for relevant, score in marked if relevant is kind] for kind in (True, False))
    return min(own) > max(others, default=-1) and min(own) >= 0


def cases(task: Task, rng: Random) -> Iterator[tuple[str, Scores]]:
    """Kinds of list: the right one, its reverse, one for all, none, two drawn ones."""
    relevant = task.fields["relevant"]
    yield "demonstration", tuple(10 if own else 0 for own in relevant)
    yield "reversed", tuple(0 if own else 10 for own in relevant)
    yield "a constant", (5,) * len(relevant)
    yield "nothing", (None,) * len(relevant)
    for name in ("drawn", "drawn again"):
        yield name, tuple(rng.choice((None, *range(11))) for _ in relevant)


def edited(scores: Scores, rng: Random) -> Scores:
    """One or two scores replaced or swapped."""
    found = list(scores)
    for _ in range(rng.randint(1, 2)):
        place, other = rng.randrange(len(found)), rng.randrange(len(found))
        if rng.random() < 0.5:
            found[place] = rng.choice((None, *range(11)))
        else:
            found[place], found[other] = found[other], found[place]
    return tuple(found)


def rollouts(task: Task, scores: Scores) -> tuple[Trajectory, ...]:
    """A rollout of each document."""
    written = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True)
    return tuple(
        Trajectory(
            task=task,
            segments=(written,),
            stop_reason="stop",
            sample=place,
            facts=(Pointwise(document=place, stated=own, probability=1.0),),
        )
        for place, own in enumerate(scores)
    )
