"""Length: an annotator who prefers the longer text.

Source: the bias for length of labels, measured in Singhal et al. 2023, arXiv:2310.03716.
"""

import math
from random import Random
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Shown


@frozen
class Length(Annotator):
    """Adds the logarithm of the length."""

    slope: Annotated[float, Field(ge=-1e6, le=1e6)] = 2.0
    """Units of quality for a text that is e times as long; below 0 for the shorter one."""

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """The opinion with the logarithm of the ratio of both lengths, in characters and one."""
        if len(shown.texts) != 2:
            return true
        return true + self.slope * math.log((len(shown.texts[0]) + 1) / (len(shown.texts[1]) + 1))
