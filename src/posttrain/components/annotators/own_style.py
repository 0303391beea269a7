"""Own style: an annotator who prefers texts of one writer, as a model those that it wrote.

Source: self-preference, measured in Panickssery et al. 2024, arXiv:2404.13076.
"""

from random import Random
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Shown
from posttrain.errors import UserError


@frozen
class OwnStyle(Annotator):
    """Adds a constant to the texts of a writer."""

    writer: str = "own"
    """Whose texts it prefers."""
    bonus: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """Units of quality that these have more."""

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """The opinion with the bonus. Raises `UserError` where nobody wrote a text."""
        if len(shown.texts) != 2:
            return true
        if not all(shown.writers):
            raise UserError(
                f"an annotator prefers texts of '{self.writer}', and these pairs do not state who wrote what; give "
                "them the columns writer_chosen and writer_rejected"
            )
        first, second = (writer == self.writer for writer in shown.writers)
        return true + self.bonus * (first - second)
