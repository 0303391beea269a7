"""Requests for pictures with a square of some shade, each with pictures of mixed quality: for flows.

The prompt is the shade, the only number of a flow's condition, and the demonstration one picture, its 256 pixels as
numbers (`datasets/pictures`). The field ``texts`` has further pictures for the same prompt, to be compared.

    prompt "-0.3512"   demonstration "0.12 -0.07 .."   texts, four more
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.datasets.pictures import drawn, written
from posttrain.types import Task

FORBIDDEN = 0.25
"""Share of pictures with a light corner."""


@frozen
class Pictures(Tasks):
    """Requests with pictures of mixed quality."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which pictures are drawn."""
    candidates: Annotated[int, Field(ge=0, le=16)] = 4
    """Pictures to be compared."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"pictures:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"requests for pictures (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[float, int]:
        return round(rng.uniform(-1.0, 1.0), 4), rng.randrange(1 << 30)

    def _task(self, seen: tuple[float, int]) -> Task:
        shade, seed = seen
        rng = np.random.default_rng(seed)
        texts = [self._picture(shade, rng) for _ in range(1 + self.candidates)]
        return Task(key="", prompt=f"{shade:.4f}", demonstrations=(texts[0],), fields={"texts": texts[1:]})

    def _picture(self, shade: float, rng: np.random.Generator) -> str:
        square = shade + 0.4 * rng.standard_normal()
        ground, grain = rng.uniform(-1.0, 1.0), rng.uniform(0.05, 0.5)
        return written(drawn(square, ground, grain, bool(rng.random() < FORBIDDEN), rng))
