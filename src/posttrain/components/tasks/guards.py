r"""Generated programs with nested guards, a task for each guard: which numbers reach the line behind it?

    def f(a, b, c):
        if a == 12:
            if b >= a + 3:
                if c <= 7:
                    return 3

A guard compares a parameter of its own with a constant, or with the parameter before it and a constant, so that every
line can be reached. The prompt is the slice around the line: ``f(a,b,c) a==12 b>=a+3\n:`` for the second. A
demonstration has a number for each parameter: `` 12 15 4``; of those of `slips` one number is wrong.

The fields are those of the reward `branch_distance` (``source``, ``function``, ``line``) and, for the curriculum
`coverage`, ``parent``, the line behind the guard before (none for the first). Tasks of one program follow each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, Final, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Level, Ordered, check_level, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

NAMES = "abcdefgh"
OPERATORS = ("==", ">=", "<=")
Depth = Annotated[int, Field(ge=1, le=8)]
Guard = tuple[str, bool, int]
"""Operator, whether it is relative to the parameter before, and the constant."""


LEVELS: Final = {1: (3, 4), 2: (4, 5), 3: (5, 6), 4: (6, 7), 5: (7, 8)}
"""By level: guards of a program."""


@frozen
class Guards(Tasks):
    """Programs and the lines that are to be reached."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 300
    """Number of programs."""
    seed: NonNegativeInt = 0
    """Which programs are drawn."""
    depth: Annotated[tuple[Depth, Depth], Ordered] = (3, 5)
    """Fewest and most guards of a program."""
    level: Level = None
    """Difficulty, which sets `depth`; None leaves that as it is."""
    largest: Annotated[int, Field(ge=9, le=999)] = 30
    """Largest number of a solution."""
    relative: Annotated[float, Field(ge=0.0, le=1.0)] = 0.4
    """Probability of a guard that refers to the parameter before."""
    slips: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Share of the demonstrations that miss one guard."""

    @model_validator(mode="after")
    def check_level(self) -> Self:
        """Refuse a level beside `depth`."""
        check_level(self.level, "depth", changed=self.depth != (3, 5))
        return self

    def load(self) -> Sequence[Task]:
        """The tasks, program by program, the first guard first."""
        if self.level is not None:
            return replace(self, level=None, depth=LEVELS[self.level]).load()
        stream = f"guards:{self.depth[0]}:{self.depth[1]}:{self.largest}:{self.relative}:{self.seed}"
        return keyed(task for drawn in distinct(self._draw, self.size, stream) for task in self._tasks(drawn))

    def describe(self) -> str:
        """Number and an example."""
        if self.level is not None:
            return replace(self, level=None, depth=LEVELS[self.level]).describe()
        return describe(f"lines behind guards in {self.size} programs (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[tuple[Guard, int], ...]:
        """Guards, each with a number that satisfies it."""
        found: list[tuple[Guard, int]] = []
        for place in range(rng.randint(*self.depth)):
            value = rng.randint(0, self.largest)
            operator, relative = rng.choice(OPERATORS), bool(place) and rng.random() < self.relative
            spare = 0 if operator == "==" else rng.randint(0, 5)
            bound = value - spare if operator == ">=" else value + spare
            found.append(((operator, relative, bound - found[-1][1] if relative else bound), value))
        return tuple(found)

    def _tasks(self, drawn: Sequence[tuple[Guard, int]]) -> Iterator[Task]:
        names = NAMES[: len(drawn)]
        conditions = [_condition(place, guard) for place, (guard, _) in enumerate(drawn)]
        lines = [f"def f({', '.join(names)}):"]
        lines += [f"{'    ' * (place + 1)}if {text}:" for place, text in enumerate(conditions)]
        lines.append(f"{'    ' * (len(drawn) + 1)}return {len(drawn)}")
        source = "\n".join(lines)
        solution = [value for _, value in drawn]
        for place in range(len(drawn)):
            slice_ = " ".join(text.replace(" ", "") for text in conditions[: place + 1])
            fields = {"source": source, "function": "f", "line": place + 3}
            prompt = f"f({','.join(names)}) {slice_}\n:"
            yield Task(
                key="",
                prompt=prompt,
                answer=" ".join(map(str, solution)),
                domain=f"{place + 1} guards",
                demonstrations=(" " + " ".join(map(str, self._shown(prompt, solution, place + 1))),),
                fields=fields | ({"parent": place + 2} if place else {}),
            )

    def _shown(self, prompt: str, solution: Sequence[int], guards: int) -> list[int]:
        """The solution, or one with a wrong number."""
        rng, found = Random(f"guards slip:{self.seed}:{prompt}"), list(solution)
        if rng.random() < self.slips:
            found[rng.randrange(guards)] = rng.randint(0, self.largest)
        return found


def _condition(place: int, guard: Guard) -> str:
    """The text of a guard: ``b >= a + 3``."""
    operator, relative, constant = guard
    if not relative:
        return f"{NAMES[place]} {operator} {constant}"
    sign = "+" if constant >= 0 else "-"
    return f"{NAMES[place]} {operator} {NAMES[place - 1]} {sign} {abs(constant)}"
