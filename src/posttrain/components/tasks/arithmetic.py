"""Generated arithmetic with worked solutions: ``47+35-8``, one step at a time, the result after ``####``."""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

Terms = Annotated[int, Field(ge=2, le=32)]
Digits = Annotated[int, Field(ge=1, le=12)]


@frozen
class Arithmetic(Tasks):
    r"""Sums, differences and products of whole numbers; no task is repeated before all have been drawn.

    The prompt is ``Q: 47+35-8\nA:``, the demonstration `` 47+35=82; 82-8=74\n#### 74``. A larger `size` begins with the
    same tasks.
    """

    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    terms: Annotated[tuple[Terms, Terms], Ordered] = (2, 3)
    """Fewest and most numbers in a task, 2 to 32, every count equally likely."""
    digits: Annotated[tuple[Digits, Digits], Ordered] = (1, 2)
    """Fewest and most digits of a number, 1 to 12, every length equally likely."""
    operators: Annotated[str, Field(pattern=r"^[-+*]+$")] = "+-"
    """Which of ``+-*`` are used; one that is listed twice is drawn twice as often."""
    demonstrate: bool = True
    """Whether tasks have their worked solution as a demonstration."""
    calls: bool = False
    """Whether worked solutions leave the results to a calculator: `` 47+35=; 82-8=``."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"arithmetic:{self.seed}", self._all())))

    def describe(self) -> str:
        """Difficulty, number and an example."""
        (fewest, most), (shortest, longest) = self.terms, self.digits
        difficulty = f"{fewest} to {most} numbers of {shortest} to {longest} digits with {' '.join(self.operators)}"
        return describe(f"arithmetic ({difficulty}; seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> str:
        """One expression."""
        numbers = [self._number(rng) for _ in range(rng.randint(*self.terms))]
        return str(numbers[0]) + "".join(f"{rng.choice(self.operators)}{number}" for number in numbers[1:])

    def _number(self, rng: Random) -> int:
        digits = rng.randint(*self.digits)
        return rng.randrange(_smallest(digits), 10**digits)

    def _all(self) -> Iterator[str]:
        """Every expression that can be drawn."""
        numbers = range(_smallest(self.digits[0]), 10 ** self.digits[1])
        for terms in range(self.terms[0], self.terms[1] + 1):
            for operators in product(sorted(set(self.operators)), repeat=terms - 1):
                for chosen in _tuples(numbers, terms):
                    yield "".join(f"{n}{o}" for n, o in zip(chosen, (*operators, ""), strict=True))

    def _task(self, expression: str) -> Task:
        steps, result = solve(expression)
        if self.calls:
            steps = [step[: step.index("=") + 1] for step in steps]
        return Task(
            key="",
            prompt=f"Q: {expression}\nA:",
            answer=str(result),
            domain=f"{len(steps) + 1} numbers",
            demonstrations=(f" {'; '.join(steps)}\n#### {result}",) if self.demonstrate else (),
            fields={"expression": expression},
        )


def solve(expression: str) -> tuple[list[str], int]:
    """The steps of a calculation, products first and from left to right, and its result."""
    found = re.findall(r"\d+|[-+*]", expression)
    numbers, operators = [int(number) for number in found[::2]], found[1::2]
    steps = []
    for level in ("*", "+-"):
        at = 0
        while at < len(operators):
            if operators[at] not in level:
                at += 1
                continue
            left, operator, right = numbers[at], operators.pop(at), numbers.pop(at + 1)
            numbers[at] = {"+": left + right, "-": left - right, "*": left * right}[operator]
            steps.append(f"{left}{operator}{right}={numbers[at]}")
    return steps, numbers[0]


def _smallest(digits: int) -> int:
    """The smallest number with `digits` digits."""
    return 0 if digits == 1 else 10 ** (digits - 1)


def _tuples(numbers: range, length: int) -> Iterator[tuple[int, ...]]:
    """Every tuple of `length` numbers, generated lazily."""
    if length == 0:
        yield ()
        return
    for head in _tuples(numbers, length - 1):
        for number in numbers:
            yield (*head, number)
