"""Corridors to walk through, for the environment of the same name, with a number and a length.

The number only makes corridors of the same length different tasks, so that held-out tasks are not trained on.
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

Cells = Annotated[int, Field(ge=2, le=100)]


@frozen
class Corridor(Tasks):
    r"""Tasks with the prompt ``Corridor 137, 5 cells.\n`` and no reference answer."""

    size: Annotated[PositiveInt, Field(le=5_000)] = 200
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    cells: Annotated[tuple[Cells, Cells], Ordered] = (5, 5)
    """Fewest and most cells, every length equally likely."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(_task, distinct(self._draw, self.size, f"corridor:{self.seed}")))

    def describe(self) -> str:
        """Length, number and an example."""
        return describe(f"corridors of {self.cells[0]} to {self.cells[1]} cells (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[int, int]:
        return rng.randrange(10_000), rng.randint(*self.cells)


def _task(drawn: tuple[int, int]) -> Task:
    number, cells = drawn
    return Task(key="", prompt=f"Corridor {number}, {cells} cells.\n", domain=f"{cells} cells", fields={"cells": cells})
