r"""Lines of code, cut at a random place and to be completed.

    total = total + pr    ->    ice

A line is one of ten templates with names in it, of which most occur twice, so that a completion can mostly be found
from what is before the cut. The prompt is the line up to the cut, which is between 3 characters and 2 before the end;
the answer and the demonstration are the rest. The field ``line`` has all of it. With `corrupted`, a share of the
demonstrations goes on like another line from a random place on.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

NAMES: Final = (
    "price",
    "total",
    "count",
    "names",
    "items",
    "width",
    "height",
    "score",
    "left",
    "right",
    "text",
    "best",
)
TEMPLATES: Final = (
    "{a} = {a} + {b}",
    "{a} = max({a}, {b})",
    "if {a} > {b}: {a} = {b}",
    "return {a} - {b} * {a}",
    "print({a}, len({a}))",
    "for {a} in {b}: {b}.pop()",
    "assert {a} != {b}, {a}",
    "{a}, {b} = {b}, {a}",
    "{a} = sorted(set({a}))",
    "while {a}: {a} -= {b}",
)
Drawn = tuple[str, int]
"""A line, and where it is cut."""


@frozen
class CodeLines(Tasks):
    """Lines to complete; a larger `size` begins with the same ones."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 500
    """Number of lines with a cut."""
    seed: NonNegativeInt = 0
    """Which are drawn."""
    corrupted: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of demonstrations with a wrong ending."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(_draw, self.size, f"code lines:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"cut lines of code (seed {self.seed})", self.load())

    def _task(self, drawn: Drawn) -> Task:
        line, cut = drawn
        rest = line[cut:]
        rng = Random(f"code lines task:{self.seed}:{line}:{cut}")
        shown = rest
        if rng.random() < self.corrupted:
            place = rng.randrange(len(rest))
            shown = rest[:place] + _line(rng)[-max(3, len(rest) - place) :]
        return Task(key="", prompt=line[:cut], answer=rest, demonstrations=(shown,), fields={"line": line})


def _line(rng: Random) -> str:
    first, second = rng.sample(NAMES, 2)
    return rng.choice(TEMPLATES).format(a=first, b=second)


def _draw(rng: Random) -> Drawn:
    line = _line(rng)
    return line, rng.randint(3, len(line) - 2)
