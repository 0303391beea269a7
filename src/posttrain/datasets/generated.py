"""Helpers of generated tasks: ranges of difficulty, and sampling of distinct items."""

from collections.abc import Callable, Hashable, Iterable
from random import Random
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

T = TypeVar("T", bound=Hashable)

DRAWS = 100
"""Draws for one item of a set before all possible items are assumed to be in it."""


def _in_order(bounds: tuple[int, int]) -> tuple[int, int]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"the smaller one comes first: [{bounds[1]}, {bounds[0]}]")
    return bounds


Ordered = AfterValidator(_in_order)
"""Marks a pair (smallest, largest), both included."""
Level = Annotated[int, Field(ge=1, le=5)] | None
"""A difficulty that sets another field."""


def check_level(level: int | None, name: str, *, changed: bool) -> None:
    """Refuse a level where the field `name`, which it sets, is given too."""
    if level is not None and changed:
        context = {"level": level, "name": name}
        raise PydanticCustomError("level", "level {level} sets {name}; give one of the two", context)


def distinct(draw: Callable[[Random], T], size: int, seed: str, rest: Iterable[T] = ()) -> list[T]:
    """Draw `size` distinct items, as long as there are more of them.

    Item i is a function of (seed, i), and of the items before it if it would repeat one of them, so that a larger set
    starts with the same items. When drawing finds no new item, items of `rest`, a list of all, are taken; after that,
    items repeat.
    """
    rest = iter(rest)
    things: list[T] = []
    seen: set[T] = set()
    for index in range(size):
        rng = Random(f"{seed}:{index}")
        first = draw(rng)
        more = (draw(rng) for _ in range(DRAWS - 1)) if first in seen else ()
        thing = next((t for draws in ((first,), more, rest) for t in draws if t not in seen), first)
        seen.add(thing)
        things.append(thing)
    return things
