r"""Short texts of three sentences with a score of 1 to 5 for each of three dimensions, in the place of research ideas.

A sentence has five letters: "n" makes an idea novel, "f" feasible, "e" effective, "x" nothing. The fields ``novelty``,
``feasibility`` and ``effectiveness`` are 1 + 4 times the share of the letter, as `annotators` see it, within 1 and 5.
No idea has much of everything, so that the dimensions are in conflict. With `sections` the first sentence has more "n",
the second more "e" and the third more "f", as ideas that are novel in the method and feasible in the plan.

    prompt "Idea (qhb):"   demonstration " nxfex. xnnex. ffxex."   novelty 2.1   feasibility 1.9   effectiveness 1.7
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, ClassVar, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.annotators import Annotators
from posttrain.components.tasks import Tasks
from posttrain.datasets.annotating import score
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

DIMENSIONS: Final = {"novelty": "n", "feasibility": "f", "effectiveness": "e"}
"""The letter of each dimension."""
SECTIONS: Final = ("n", "e", "f")
"""Letter of each sentence that has a goal."""
LETTERS: Final = 5
"""Of a sentence."""
TILT: Final = 0.6
"""Probability that a letter is that of the section."""
STREAM: Final = 0.3
"""Part of the name of the annotators' draws."""


@frozen
class Ideas(Tasks):
    """Requests for an idea, each with an idea and its scores."""

    RENAMED: ClassVar = {"noise": "annotators=[{kind: noise, spread: ..., shape: normal}]"}

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which ideas are drawn."""
    sections: bool = False
    """Whether sentences have goals."""
    annotators: Annotators = ()
    """Who gives the scores; of several the mean is taken, without any they are exact."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"ideas:{self.seed}:{self.sections}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"ideas with scores (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[str, str]:
        name = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3))
        sentences = []
        for goal in SECTIONS:
            tilted = TILT if self.sections else 0.0
            letters = (goal if rng.random() < tilted else rng.choice("nfex") for _ in range(LETTERS))
            sentences.append("".join(letters))
        return name, " " + " ".join(f"{sentence}." for sentence in sentences)

    def _task(self, drawn: tuple[str, str]) -> Task:
        name, text = drawn
        rng = Random(f"ideas:{self.seed}:{drawn}:{STREAM}")
        given = {
            dimension: score(1.0 + 4.0 * share(text, letter), self.annotators, rng, middle=3.0)
            for dimension, letter in DIMENSIONS.items()
        }
        scores = {name: min(5.0, max(1.0, round(one, 2))) for name, one in given.items() if one is not None}
        return Task(key="", prompt=f"Idea ({name}):", demonstrations=(text,), fields=scores)


def share(text: str, letter: str) -> float:
    """The share of a letter among the letters of an idea."""
    letters = [one for one in text if one.isalpha()]
    return letters.count(letter) / max(len(letters), 1)
