"""Points of a mixture of two Gaussians in the plane, half of them from each, to be imitated by a flow.

A prompt is the number of a draw (``draw 17``) and has no information about the point: for unconditional flows.
"""

import math
from collections.abc import Sequence
from random import Random
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Task

Point = Annotated[tuple[float, ...], Field(min_length=1)]


@frozen
class TwoModes(Tasks):
    """Draws from the mixture, one demonstration each."""

    RENAMED: ClassVar = {"deviation": "std"}

    size: PositiveInt = 2000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which points are drawn."""
    modes: Annotated[tuple[Point, ...], Field(min_length=1)] = ((-2.0, 0.0), (2.0, 0.0))
    """Means of the Gaussians, all equally likely."""
    std: NonNegativeFloat = 0.5
    """Standard deviation of each coordinate."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, range(self.size)))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"draws from a mixture of {len(self.modes)} Gaussians (seed {self.seed})", self.load())

    def _task(self, index: int) -> Task:
        rng = Random(f"two_modes:{self.seed}:{index}")
        point = [mean + self.std * _normal(rng) for mean in self.modes[rng.randrange(len(self.modes))]]
        text = " ".join(f"{number:.6g}" for number in point)
        return Task(key="", prompt=f"draw {index}", demonstrations=(text,))


def _normal(rng: Random) -> float:
    """A standard normal number, by Box-Muller without the second number, so that draws have no state."""
    return math.sqrt(-2.0 * math.log(1.0 - rng.random())) * math.cos(2.0 * math.pi * rng.random())
