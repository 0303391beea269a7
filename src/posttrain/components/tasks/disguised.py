r"""Texts that a guard is to read, as seeds to be written anew in another language that disguises harmful words.

A seed has three words, one of which may be of a category of harm. Its prompt is ``anew: arson red tree\n:``, and a
demonstration has the same words, each as it is, backwards, or with its vowels left out: ``arson dre tr``.
A candidate keeps the categories of its seed where it has the same words, each in one of these forms. Fields: ``text``,
``categories`` (numbers from 0, none for a safe text), ``language`` of the demonstration.

There are twelve categories of three words; they stand for eleven kinds of harm and jailbreaks. 32 common words are not
harmful. ``which: held_out`` has disguised texts themselves in ``text``.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.disguises import FORMS, HARMS, ORDINARY, disguised
from posttrain.datasets.keys import keyed
from posttrain.types import Task

SAFE: Final = "safe"


@frozen
class Disguised(Tasks):
    """Seeds of three words, half of them harmful."""

    size: Annotated[int, Field(ge=1, le=100_000)] = 400
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    which: Literal["seeds", "plain", "backwards", "voiceless"] = "seeds"
    """Seeds with prompts, or texts in one form."""
    odd: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Probability that a word of a demonstration is disguised."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(self._task(number) for number in range(self.size))

    def describe(self) -> str:
        """Number and an example."""
        return describe(
            f"texts of three words in {len(HARMS)} categories or none ({self.which}, seed {self.seed})", self.load()
        )

    def _task(self, number: int) -> Task:
        rng = Random(f"disguised:{self.seed}:{number}")
        words, own = rng.sample(ORDINARY, 3), []
        if number % 2:
            own = [rng.randrange(len(HARMS))]
            words[rng.randrange(3)] = rng.choice(HARMS[own[0]])
        text = " ".join(words)
        if self.which != "seeds":
            text = " ".join(disguised(word, self.which) for word in words)
        shown = [disguised(word, rng.choice(FORMS[1:]) if rng.random() < self.odd else FORMS[0]) for word in words]
        return Task(
            key="",
            prompt=f"anew: {text}\n:",
            domain=f"harm {own[0]}" if own else SAFE,
            demonstrations=(f" {' '.join(shown)}",),
            fields={"text": text, "categories": own, "words": words},
        )
