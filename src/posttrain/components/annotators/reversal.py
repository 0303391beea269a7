"""Reversal: an annotator who prefers the worse text, as where a scale was read from its other end."""

from random import Random

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Shown


@frozen
class Reversal(Annotator):
    """Has the opposite opinion."""

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """The opinion, mirrored at the middle."""
        return 2 * shown.middle - true
