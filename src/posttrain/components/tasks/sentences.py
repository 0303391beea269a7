r"""Generated texts of a few sentences about named animals, in which one word is not wanted.

The prompt names the animals, ``About: fox, crow\n``, and a demonstration has a sentence for each, `` the fox runs far.
the crow darn sleeps.``, with the unwanted word in some of them. Which sentence is to blame is in the text, so that a
reward for each sentence can say what one for the whole text cannot.
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

ANIMALS: Final = (
    *("fox", "crow", "bear", "hare", "wolf", "deer", "mole", "swan", "goat", "toad"),
    *("lynx", "seal", "crab", "duck", "hawk", "mouse", "snail", "otter", "horse", "sheep"),
)
VERBS: Final = ("runs", "sleeps", "sings", "waits", "eats", "hides", "swims", "looks")
ADVERBS: Final = ("far", "well", "now", "here", "often", "alone")
UNWANTED: Final = "darn"
WORDS: Final = (
    "About:",
    "the",
    *(f" {word}" for word in ("the", *ANIMALS, *VERBS, *ADVERBS, UNWANTED)),
    *(",", ".", "\n"),
)
"""Texts that are one token each for a model of these tasks."""
Count = Annotated[int, Field(ge=1, le=6)]


LEVELS: Final = {1: (2, 2), 2: (2, 3), 3: (3, 4), 4: (4, 5), 5: (5, 6)}
"""By level: sentences of a text."""


@frozen
class Sentences(Tasks):
    """Texts about animals, some of them with an unwanted word."""

    size: Annotated[PositiveInt, Field(le=50_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    sentences: Annotated[tuple[Count, Count], Ordered] = (2, 2)
    """Fewest and most sentences of a text; one animal each."""
    level: Level = None
    """Difficulty, which sets `sentences`; None leaves that as it is."""
    unwanted: Annotated[float, Field(ge=0.0, le=1.0)] = 0.3
    """Probability of the unwanted word in a sentence."""

    @model_validator(mode="after")
    def check_level(self) -> Self:
        """Refuse a level beside `sentences`."""
        check_level(self.level, "sentences", changed=self.sentences != (2, 2))
        return self

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        if self.level is not None:
            return replace(self, level=None, sentences=LEVELS[self.level]).load()
        return keyed(map(self._task, distinct(self._draw, self.size, f"sentences:{self.seed}")))

    def describe(self) -> str:
        """Number of sentences, number of tasks and an example."""
        if self.level is not None:
            return replace(self, level=None, sentences=LEVELS[self.level]).describe()
        low, high = self.sentences
        return describe(f"texts of {low} to {high} sentences (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[tuple[str, str, str, bool], ...]:
        animals = rng.sample(ANIMALS, rng.randint(*self.sentences))
        return tuple((one, rng.choice(VERBS), rng.choice(ADVERBS), rng.random() < self.unwanted) for one in animals)

    def _task(self, drawn: tuple[tuple[str, str, str, bool], ...]) -> Task:
        written = [
            f" the {animal}{f' {UNWANTED}' if bad else ''} {verb} {adverb}." for animal, verb, adverb, bad in drawn
        ]
        animals = [animal for animal, *_ in drawn]
        return Task(
            key="",
            prompt=f"About: {', '.join(animals)}\n",
            answer=" ".join(animals),
            domain=f"{len(animals)} sentences" if len(animals) > 1 else "1 sentence",
            demonstrations=("".join(written),),
        )
