"""Generated countdown tasks: make a target from given numbers with + - * /, using each number exactly once.

Every task has a solution, since the target is computed: numbers are drawn and combined until one is left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, floordiv, mul, sub
from random import Random
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

Count = Annotated[int, Field(ge=2, le=8)]


@frozen
class Countdown(Tasks):
    """Puzzles, none of which is repeated before all have been drawn; a larger `size` begins with the same ones.

    The answer is one of possibly many solutions, so rewards need the fields ``numbers`` and ``target``. Every step of
    the demonstration gives a positive whole number.
    """

    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    numbers: Annotated[tuple[Count, Count], Ordered] = (3, 4)
    """Fewest and most numbers in a task, 2 to 8, every count equally likely."""
    largest: Annotated[int, Field(ge=2, le=1000)] = 25
    """Largest given number; the smallest is 1."""
    largest_target: Annotated[int, Field(ge=10, le=100_000)] = 100
    """Largest target; the smallest is 1."""
    operators: Literal["+-*/", "+-", "+-*"] = "+-*/"
    """Operators that solutions are made of."""
    differ: bool = False
    """Whether all numbers of a task are different."""
    demonstrate: bool = True
    """Whether tasks have a demonstration."""

    @model_validator(mode="after")
    def check_largest(self) -> Self:
        """Refuse more different numbers than there are."""
        if self.differ and self.largest < self.numbers[1]:
            context = {"largest": self.largest, "most": self.numbers[1]}
            raise PydanticCustomError("differ", "there are no {most} different numbers up to {largest}", context)
        return self

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"countdown:{self.seed}")))

    def describe(self) -> str:
        """Difficulty, number and an example."""
        difficulty = f"{self.numbers[0]} to {self.numbers[1]} numbers up to {self.largest}"
        return describe(f"countdown ({difficulty}, targets up to {self.largest_target}; seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> "_Puzzle":
        """Draw numbers until the target is within the limit."""
        count = rng.randint(*self.numbers)
        while True:
            if self.differ:
                numbers = tuple(rng.sample(range(1, self.largest + 1), count))
            else:
                numbers = tuple(rng.randint(1, self.largest) for _ in range(count))
            solution, steps = _combine(numbers, rng, self.operators)
            if solution.value <= self.largest_target:
                return _Puzzle(numbers=numbers, target=solution.value, solution=solution.text, steps=steps)

    def _task(self, puzzle: "_Puzzle") -> Task:
        given = " ".join(map(str, puzzle.numbers))
        named = " ".join(self.operators)
        demonstration = f" {'; '.join(puzzle.steps)}\n#### {puzzle.solution}"
        return Task(
            key="",
            prompt=f"Numbers: {given}\nTarget: {puzzle.target}\nUse each number once, with {named} and brackets.\nA:",
            answer=puzzle.solution,
            domain=f"{len(puzzle.numbers)} numbers",
            demonstrations=(demonstration,) if self.demonstrate else (),
            fields={"numbers": list(puzzle.numbers), "target": puzzle.target},
        )


@dataclass(frozen=True, kw_only=True)
class _Puzzle:
    """A puzzle with its solution; puzzles are equal if their numbers and targets are."""

    numbers: tuple[int, ...]
    target: int
    solution: str = field(compare=False)
    steps: tuple[str, ...] = field(compare=False)


_OPERATIONS: Mapping[str, tuple[int, Callable[[int, int], int]]] = {
    "+": (1, add),
    "-": (1, sub),
    "*": (2, mul),
    "/": (2, floordiv),
}
"""Precedence and function of each operator (divisions have no remainder)."""


class _Term(NamedTuple):
    value: int
    text: str
    binding: int = 3
    """Precedence of its outermost operator; 3 for a single number."""


def _combine(numbers: Sequence[int], rng: Random, allowed: str) -> tuple[_Term, tuple[str, ...]]:
    """Combine two random numbers until one is left; every result is a positive whole number."""
    left = [_Term(number, str(number)) for number in numbers]
    steps = []
    while len(left) > 1:
        a, b = (left.pop(rng.randrange(len(left))) for _ in range(2))
        if a.value < b.value:
            a, b = b, a
        possible = "+*" + "-" * (a.value > b.value) + "/" * (a.value % b.value == 0)
        operator = rng.choice([operator for operator in possible if operator in allowed])
        binding, apply = _OPERATIONS[operator]
        value = apply(a.value, b.value)
        before = f"({a.text})" if a.binding < binding else a.text
        after = f"({b.text})" if b.binding < binding + (operator in "-/") else b.text
        left.append(_Term(value, f"{before}{operator}{after}", binding))
        steps.append(f"{a.value}{operator}{b.value}={value}")
    return left[0], tuple(steps)
