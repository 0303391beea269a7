"""Questions about which box a ball is in, only some of which have the answer in the prompt.

The others can only be guessed, one box after another, as in the smallest experiment of UFO (arXiv:2507.14295): a policy
that never repeats a box finds the ball in at most as many turns as there are boxes.
"""

from collections.abc import Sequence
from random import Random
from string import ascii_lowercase
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Guessing(Tasks):
    r"""Prompts with the answer, ``Ball 4711, boxes abcdef, in c.\nBox:``, or without, ``... abcdef, hidden.\nBox:``."""

    size: Annotated[PositiveInt, Field(le=5_000)] = 400
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    options: Annotated[int, Field(ge=2, le=26)] = 6
    """Number of boxes, all equally likely."""
    hidden: Share = 0.5
    """Share of the tasks whose prompt does not have the answer."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"guessing:{self.seed}")))

    def describe(self) -> str:
        """Number of boxes, number of tasks and an example."""
        return describe(f"guessing one of {self.options} boxes (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[int, str, bool]:
        return rng.randrange(10_000), rng.choice(ascii_lowercase[: self.options]), rng.random() < self.hidden

    def _task(self, drawn: tuple[int, str, bool]) -> Task:
        number, box, hidden = drawn
        where = "hidden" if hidden else f"in {box}"
        return Task(
            key="",
            prompt=f"Ball {number}, boxes {ascii_lowercase[: self.options]}, {where}.\nBox:",
            answer=box,
            domain="hidden" if hidden else "told",
        )
