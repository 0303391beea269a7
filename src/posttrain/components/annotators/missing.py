"""Missing labels: an annotator who leaves some of them out."""

from random import Random
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Shown


@frozen
class Missing(Annotator):
    """Gives no label by chance."""

    rate: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.3
    """Probability that a label is left out."""

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """The opinion, or None."""
        return None if rng.random() < self.rate else true
