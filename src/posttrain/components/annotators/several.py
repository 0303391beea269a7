"""One annotator with several faults, which change its opinion one after another."""

from random import Random
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Shown


@frozen
class Several(Annotator):
    """Faults in their order."""

    parts: Annotated[tuple[Annotator, ...], Field(min_length=1, max_length=16)]
    """The faults; noise is usually the last."""

    @property
    def name(self) -> str:
        """The names of all."""
        return "+".join(part.name for part in self.parts)

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """The opinion after all faults, or None from the first that leaves the label out."""
        found: float | None = true
        for part in self.parts:
            found = None if found is None else part.opinion(found, shown, rng)
        return found

    def quotation(self, quote: str, rng: Random) -> str:
        """The quotation after all faults."""
        for part in self.parts:
            quote = part.quotation(quote, rng)
        return quote
