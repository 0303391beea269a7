r"""Generated multiple-choice questions about a table of numbers, in five levels of difficulty.

``a 12, b 7, c 30\na+b=?\nA 19 B 21 C 18 D 91\n``: the value of one letter (level 1), or a sum of two to five of them
(levels 2 to 5). The wrong options are near, and every place is equally likely to be right. A demonstration works the
sum out: `` 12+7=19\n\boxed{A}``. The domain is the level.
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
NAMES = "abcdef"
LETTERS = "ABCD"
Drawn = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


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
    """Largest number of the table."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"choices:{self.seed}")))

    def describe(self) -> str:
        """Levels, number and an example."""
        return describe(f"questions with four options (levels {self.level[0]} to {self.level[1]})", self.load())

    def _draw(self, rng: Random) -> Drawn:
        """Numbers of the table, places of the numbers that are added, and the options."""
        terms = rng.randint(*self.level)
        table = tuple(rng.randint(1, self.largest) for _ in range(min(max(terms, 3), len(NAMES))))
        places = tuple(rng.sample(range(len(table)), terms))
        result = sum(table[place] for place in places)
        near = [result + step for step in (-10, -3, -2, -1, 1, 2, 3, 10) if result + step > 0]
        options = [result, *rng.sample(near, 3)]
        rng.shuffle(options)
        return table, places, tuple(options)

    def _task(self, drawn: Drawn) -> Task:
        table, places, options = drawn
        numbers = [table[place] for place in places]
        letter = LETTERS[options.index(sum(numbers))]
        listed = ", ".join(f"{name} {number}" for name, number in zip(NAMES, table, strict=False))
        offered = " ".join(f"{mark} {option}" for mark, option in zip(LETTERS, options, strict=True))
        steps, total = [], numbers[0]
        for number in numbers[1:]:
            steps.append(f"{total}+{number}={total + number}")
            total += number
        return Task(
            key="",
            prompt=f"{listed}\n{'+'.join(NAMES[place] for place in places)}=?\n{offered}\n",
            answer=letter,
            domain=f"level {len(places)}",
            demonstrations=(f" {'; '.join(steps) or total}\n\\boxed{{{letter}}}",),
            fields={"options": [str(option) for option in options], "level": len(places)},
        )
