"""What generated tasks share: ranges of difficulty, and drawing things that differ from one another."""

from collections.abc import Callable, Hashable, Iterable
from random import Random
from typing import TypeVar

from pydantic import AfterValidator

T = TypeVar("T", bound=Hashable)

ATTEMPTS = 100
"""Draws for one place in a set before all that can be drawn is taken to be in it."""


def _in_order(bounds: tuple[int, int]) -> tuple[int, int]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"the smaller one comes first: [{bounds[1]}, {bounds[0]}]")
    return bounds


Ordered = AfterValidator(_in_order)
"""Marks a pair (smallest, largest), both included."""


def distinct(draw: Callable[[Random], T], size: int, seed: str, rest: Iterable[T] = ()) -> list[T]:
    """Draw `size` things that differ, as long as there are any more that do.

    Thing i is decided by (seed, i), and by those before it where it would repeat one of them; so a larger set begins
    with the same things. When drawing again no longer helps, `rest` is asked, which lists all there is; after that,
    things repeat.
    """
    rest = iter(rest)
    things: list[T] = []
    seen: set[T] = set()
    for index in range(size):
        rng = Random(f"{seed}:{index}")
        first = draw(rng)
        more = (draw(rng) for _ in range(ATTEMPTS - 1)) if first in seen else ()
        thing = next((t for draws in ((first,), more, rest) for t in draws if t not in seen), first)
        seen.add(thing)
        things.append(thing)
    return things
