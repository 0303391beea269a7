r"""Generated sums of fractions, whose value can be written in three forms: 19/10, 1.9, and nineteen tenths.

The prompt is ``Q: 12/10+7/10\nA:``. The answer is one of the forms, drawn for each task; the field ``forms`` lists all
three. A demonstration adds the numerators and writes the value in any of the forms: `` 12+7=19 \boxed{1.9}``. With
probability `hedged` it writes two values, of which one is right: ``\boxed{1.9 or 21/10}``.
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

DENOMINATORS: Final = {2: "half", 4: "quarter", 5: "fifth", 8: "eighth", 10: "tenth", 20: "twentieth"}
LEVELS: Final = {1: ((2, 4, 10), 2, 99), 2: ((4, 5, 8, 10, 20), 2, 60), 3: (tuple(DENOMINATORS), 2, 99)}
LEVELS.update({4: (tuple(DENOMINATORS), 3, 99), 5: (tuple(DENOMINATORS), 4, 249)})
"""By level: denominators, terms, and the largest numerator."""
_ONES: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS: Final = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


@frozen
class Fractions(Tasks):
    """Sums of two to four fractions of one denominator."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    level: Annotated[int, Field(ge=1, le=5)] = 2
    """Difficulty: more denominators, then more and larger terms."""
    hedged: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of demonstrations with two values."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"fractions:{self.level}:{self.seed}")))

    def describe(self) -> str:
        """Level, number and an example."""
        return describe(f"sums of fractions (level {self.level}, seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[int, tuple[int, ...]]:
        denominators, terms, largest = LEVELS[self.level]
        return rng.choice(denominators), tuple(rng.randint(1, largest) for _ in range(terms))

    def _task(self, drawn: tuple[int, tuple[int, ...]]) -> Task:
        denominator, numerators = drawn
        rng = Random(f"fractions:{self.seed}:{drawn}")
        total, steps = numerators[0], []
        for numerator in numerators[1:]:
            steps.append(f"{total}+{numerator}={total + numerator}")
            total += numerator
        forms = forms_of(total, denominator)
        written = rng.choice(forms)
        if rng.random() < self.hedged:
            both = [written, rng.choice(forms_of(total + rng.choice((-2, -1, 1, 2)), denominator))]
            written = " or ".join(rng.sample(both, 2))
        return Task(
            key="",
            prompt=f"Q: {'+'.join(f'{numerator}/{denominator}' for numerator in numerators)}\nA:",
            answer=rng.choice(forms),
            demonstrations=(f" {'; '.join(steps)} \\boxed{{{written}}}",),
            fields={"forms": list(forms)},
        )


def forms_of(numerator: int, denominator: int) -> tuple[str, str, str]:
    """A fraction as it is, as a decimal number, and in words."""
    decimal = f"{numerator / denominator:.3f}".rstrip("0").rstrip(".")
    name = DENOMINATORS[denominator]
    plural = {"half": "halves"}.get(name, f"{name}s")
    return f"{numerator}/{denominator}", decimal, f"{in_words(numerator)} {name if numerator == 1 else plural}"


def in_words(number: int) -> str:
    """A whole number from 0 to 9,999 in English words."""
    if number >= 1000:
        return f"{in_words(number // 1000)} thousand" + (f" {in_words(number % 1000)}" if number % 1000 else "")
    if number >= 100:
        return f"{_ONES[number // 100]} hundred" + (f" {in_words(number % 100)}" if number % 100 else "")
    if number < 20:
        return _ONES[number]
    return _TENS[number // 10] + (f"-{_ONES[number % 10]}" if number % 10 else "")
