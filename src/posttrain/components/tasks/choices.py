r"""Generated multiple-choice questions about sums, in five levels of difficulty.

``Q: 12+7\n19=A 21=B 18=C 29=D\nA:``: a sum of two numbers (level 1) to six (level 5), and four options with their
letters. The wrong options are near, and every place is equally likely to be right. A demonstration works the sum out:
`` 12+7=19\n19=A\n#### A``, or with the letter in a box. The domain is the level.
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
Drawn = tuple[tuple[int, ...], tuple[int, ...]]


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

    def _draw(self, rng: Random) -> Drawn:
        """The numbers that are added, and the options."""
        numbers = tuple(rng.randint(1, self.largest) for _ in range(rng.randint(*self.level) + 1))
        result = sum(numbers)
        near = [result + step for step in (-10, -3, -2, -1, 1, 2, 3, 10) if result + step > 0]
        options = [result, *rng.sample(near, 3)]
        rng.shuffle(options)
        return numbers, tuple(options)

    def _task(self, drawn: Drawn) -> Task:
        numbers, options = drawn
        letter = LETTERS[options.index(sum(numbers))]
        offered = " ".join(f"{option}={mark}" for mark, option in zip(LETTERS, options, strict=True))
        steps, total = [], numbers[0]
        for number in numbers[1:]:
            steps.append(f"{total}+{number}={total + number}")
            total += number
        level = len(numbers) - 1
        end = f"\\boxed{{{letter}}}" if self.boxed else f"#### {letter}"
        return Task(
            key="",
            prompt=f"Q: {'+'.join(map(str, numbers))}\n{offered}\nA:",
            answer=letter,
            domain=f"level {level}",
            demonstrations=(f" {'; '.join(steps)}\n{total}={letter}\n{end}",),
            fields={"options": [str(option) for option in options], "level": level},
        )
