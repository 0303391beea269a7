r"""Generated multiple-choice questions about the last digit of a sum, in five levels of difficulty.

``Q: 12+7\nA 01 B 234 C 56 D 789\nA:``: a sum of two numbers (level 1) to six (level 5); the options are groups of last
digits. A demonstration works the sum out: `` 12+7=19\n#### D``, or with the letter in a box. The domain is the level.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

Level = Annotated[int, Field(ge=1, le=5)]
LETTERS = "ABCD"
GROUPS = ("01", "234", "56", "789")
"""Last digits of each option."""


@frozen
class Choices(Tasks):
    """Questions with four options."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    level: Annotated[tuple[Level, Level], Ordered] = (1, 5)
    """Lowest and highest level: how many numbers are added; every level equally likely."""
    largest: Annotated[int, Field(ge=9, le=999)] = 30
    """Largest number of a sum."""

    boxed: bool = False
    """Whether the letter of a demonstration is in a box, not after ``####``."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"choices:{self.seed}")))

    def describe(self) -> str:
        """Levels, number and an example."""
        return describe(f"questions with four options (levels {self.level[0]} to {self.level[1]})", self.load())

    def _draw(self, rng: Random) -> tuple[int, ...]:
        """The numbers that are added."""
        return tuple(rng.randint(1, self.largest) for _ in range(rng.randint(*self.level) + 1))

    def _task(self, numbers: tuple[int, ...]) -> Task:
        steps, total = [], numbers[0]
        for number in numbers[1:]:
            steps.append(f"{total}+{number}={total + number}")
            total += number
        letter = next(mark for mark, digits in zip(LETTERS, GROUPS, strict=True) if str(total)[-1] in digits)
        offered = " ".join(f"{mark} {digits}" for mark, digits in zip(LETTERS, GROUPS, strict=True))
        level = len(numbers) - 1
        end = f"\\boxed{{{letter}}}" if self.boxed else f"#### {letter}"
        return Task(
            key="",
            prompt=f"Q: {'+'.join(map(str, numbers))}\n{offered}\nA:",
            answer=letter,
            domain=f"level {level}",
            demonstrations=(f" {'; '.join(steps)}\n{end}",),
            fields={"options": list(GROUPS), "level": level},
        )
