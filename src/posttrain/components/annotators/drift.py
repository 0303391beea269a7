"""Drift: an annotator whose opinion changes with the number of things seen, from the true one to a multiple of it.

At 0 it has none at the end, and is all noise where it has any; below 0 it is reversed. A positive multiple changes
labels only with noise beside it.
"""

from random import Random
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Shown


@frozen
class Drift(Annotator):
    """Multiplies the opinion by a number that changes from 1 on."""

    to: Annotated[float, Field(ge=-100.0, le=100.0)] = -1.0
    """The multiple at the end."""
    after: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    """Tasks until the end; between, the multiple changes along a line."""

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """The multiple of the opinion at this place."""
        by = 1.0 + (self.to - 1.0) * min(1.0, shown.number / self.after)
        return shown.middle + by * (true - shown.middle)
