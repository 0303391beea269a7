r"""Generated statements about sums, each in two variants: a true one, and one with a changed result.

``Q: 12+7-3=16?\nA:<think>`` is true, ``Q: 12+7-3=18?\nA:<think>`` is not; both have the same field ``variant_of``, and
``truth`` has which is which. A demonstration works the sum out and subtracts what is claimed: `` 12+7=19; 19-3=16;
16-18=-2\n</think> <answer> \boxed{disproved} </answer>``. A model that always answers "proved" is right on half of the
statements, and on both variants of none.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

LEVELS = {1: (2, 79), 2: (2, 99), 3: (3, 99), 4: (4, 99), 5: (5, 999)}
"""By level: numbers of a sum, and the largest."""


@frozen
class Identities(Tasks):
    """True and false statements about sums and differences."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 1000
    """Number of statements; the variants of one follow each other."""
    seed: NonNegativeInt = 0
    """Which are drawn."""
    level: Annotated[int, Field(ge=1, le=5)] = 2
    """Difficulty: larger numbers, and more of them."""
    variants: Literal["both", "true_only"] = "both"
    """Whether false statements are among them."""

    def load(self) -> Sequence[Task]:
        """The statements, in the order in which they are drawn."""
        each = 2 if self.variants == "both" else 1
        drawn = distinct(self._draw, -(-self.size // each), f"identities:{self.level}:{self.seed}")
        both = [self._task(one, truth) for one in drawn for truth in (True, False)[:each]]
        return keyed(both[: self.size])

    def describe(self) -> str:
        """Level, number and an example."""
        return describe(f"statements about sums (level {self.level}, seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[int, ...]:
        """The numbers, those that are subtracted with a minus."""
        terms, largest = LEVELS[self.level]
        return rng.randint(1, largest), *(rng.choice((1, -1)) * rng.randint(1, largest) for _ in range(terms - 1))

    def _task(self, numbers: tuple[int, ...], truth: bool) -> Task:
        change = Random(f"identities:{self.seed}:{numbers}").choice((-10, -2, -1, 1, 2, 10))
        total, steps = numbers[0], []
        for number in numbers[1:]:
            steps.append(f"{total}{number:+d}={total + number}")
            total += number
        claimed = total if truth else total + change
        expression = str(numbers[0]) + "".join(f"{number:+d}" for number in numbers[1:])
        compared = f"{total}{-claimed:+d}={total - claimed}"
        verdict = "proved" if truth else "disproved"
        return Task(
            key="",
            prompt=f"Q: {expression}={claimed}?\nA:<think>",
            answer=verdict,
            domain="true" if truth else "false",
            demonstrations=(f" {'; '.join(steps)}; {compared}\n</think> <answer> \\boxed{{{verdict}}} </answer>",),
            fields={"truth": truth, "variant_of": expression},
        )
