r"""Sentences in a cipher, to be translated word by word: every word stands for another one, by a fixed table.

``go ta mi\n:`` is to become ``be su ka``. The table is a permutation of `words` syllables, and follows from `table`, so
that what was learned on some sentences holds for all. A demonstration thinks of the first word and has the
translation; with the probability `broken` it lacks a tag, as a base model often does, so that there is a form to learn.
"""

from collections.abc import Sequence
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

SYLLABLES = tuple(a + b for b in "aeio" for a in "bdgkmst")
Length = Annotated[int, Field(ge=1, le=32)]


LEVELS: Final = {1: (6, 7), 2: (7, 8), 3: (8, 9), 4: (9, 10), 5: (11, 12)}
"""By level: words of a sentence."""


@frozen
class Ciphers(Tasks):
    """Sentences and their translations."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which sentences are drawn."""
    length: Annotated[tuple[Length, Length], Ordered] = (6, 12)
    """Fewest and most words of a sentence."""
    level: Level = None
    """Difficulty, which sets `length`; None leaves that as it is."""
    words: Annotated[int, Field(ge=4, le=28)] = 8
    """Words of the language."""
    table: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Which permutation it is."""
    broken: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of demonstrations without the tag that closes the thoughts."""

    @model_validator(mode="after")
    def check_level(self) -> Self:
        """Refuse a level beside `length`."""
        check_level(self.level, "length", changed=self.length != (6, 12))
        return self

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        if self.level is not None:
            return replace(self, level=None, length=LEVELS[self.level]).load()
        stream = f"ciphers:{self.length}:{self.words}:{self.broken}:{self.seed}"
        return keyed(map(self._task, distinct(self._draw, self.size, stream)))

    def describe(self) -> str:
        """Lengths, number and an example."""
        if self.level is not None:
            return replace(self, level=None, length=LEVELS[self.level]).describe()
        return describe(f"sentences of {self.length[0]} to {self.length[1]} words in a cipher", self.load())

    def _draw(self, rng: Random) -> tuple[tuple[int, ...], bool]:
        """Words by number, and whether the demonstration is broken."""
        words = tuple(rng.randrange(self.words) for _ in range(rng.randint(*self.length)))
        return words, rng.random() < self.broken

    def _task(self, drawn: tuple[tuple[int, ...], bool]) -> Task:
        numbers, broken = drawn
        order = list(range(self.words))
        Random(f"ciphers:table:{self.table}:{self.words}").shuffle(order)
        source = " ".join(SYLLABLES[i] for i in numbers)
        answer = " ".join(SYLLABLES[order[i]] for i in numbers)
        first = f"{SYLLABLES[numbers[0]]} {SYLLABLES[order[numbers[0]]]}"
        closing = "" if broken else "</think>"
        return Task(
            key="",
            prompt=f"{source}\n:",
            answer=answer,
            domain=f"{len(numbers)} words",
            demonstrations=(f" <think>{first}{closing}<translate>{answer}</translate>",),
            fields={"source": source, "language": "cipher"},
        )
