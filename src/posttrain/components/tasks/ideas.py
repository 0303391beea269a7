r"""Short texts of three sentences with a score of 1 to 5 for each of three dimensions, in the place of research ideas.

A sentence has five letters: "n" makes an idea novel, "f" feasible, "e" effective, "x" nothing. The fields ``novelty``,
``feasibility`` and ``effectiveness`` are 1 + 4 times the share of the letter, with noise, within 1 and 5. No idea has
much of everything, so that the dimensions are in conflict. With `sections` the first sentence has more "n", the second
more "e" and the third more "f", as ideas that are novel in the method and feasible in the plan.

    prompt "Idea (qhb):"   demonstration " nxfex. xnnex. ffxex."   novelty 2.1   feasibility 1.9   effectiveness 1.7
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
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


@frozen
class Ideas(Tasks):
    """Requests for an idea, each with an idea and its scores."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which ideas are drawn."""
    sections: bool = False
    """Whether sentences have goals."""
    noise: NonNegativeFloat = 0.3
    """Standard deviation of the noise of a score."""

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
        rng = Random(f"ideas:{self.seed}:{drawn}:{self.noise}")
        scores = {
            dimension: min(5.0, max(1.0, round(1.0 + 4.0 * share(text, letter) + rng.gauss(0.0, self.noise), 2)))
            for dimension, letter in DIMENSIONS.items()
        }
        return Task(key="", prompt=f"Idea ({name}):", demonstrations=(text,), fields=scores)


def share(text: str, letter: str) -> float:
    """The share of a letter among the letters of an idea."""
    letters = [one for one in text if one.isalpha()]
    return letters.count(letter) / max(len(letters), 1)
