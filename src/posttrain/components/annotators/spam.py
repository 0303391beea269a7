"""Spam: an annotator who does not read: labels by lot, or always the same."""

from random import Random
from typing import Literal

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Shown


@frozen
class Spam(Annotator):
    """Has an opinion of its own that is not about the texts."""

    always: Literal["lot", "first", "second"] = "lot"
    """``first`` prefers the first text, or finds that a statement holds; ``second`` the opposite."""

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """One more or one less than the middle."""
        if self.always == "lot":
            return shown.middle + rng.choice((-1.0, 1.0))
        return shown.middle + (1.0 if self.always == "first" else -1.0)
