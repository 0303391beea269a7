"""Position: an annotator who prefers the text that is shown first, or the second.

Source: the bias for a place, measured in Wang et al. 2023, arXiv:2305.17926.
"""

from random import Random
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Shown


@frozen
class Position(Annotator):
    """Adds a constant to the first text."""

    offset: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """Units of quality that the first text has more; below 0 for the second."""

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """The opinion with the offset, where two texts are shown."""
        return true + self.offset if len(shown.texts) == 2 else true
