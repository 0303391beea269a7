"""Feedback: an annotator whose labels have quotations of its own text as evidence, some of which are invented.

Source: the extraction of principles in RLBFF, arXiv:2509.21319, which drops what no part of the text matches.
"""

from random import Random
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.annotators import Annotator

INVENTED = "zzz qqq xxx"


@frozen
class Feedback(Annotator):
    """Quotes itself, or nothing that is there."""

    invented: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of the quotations that are in no text."""

    def quotation(self, quote: str, rng: Random) -> str:
        """The quotation, or an invented one."""
        return INVENTED if rng.random() < self.invented else quote
