"""The text in which a reward model reads the principles that a completion is scored by, before the completion.

Source: SALMON, arXiv:2310.05910, and its release: the prompt of the reward model lists principles, each in its positive
or its negated form. The wording here is of this package.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen

REQUEST = "{principles}\n{question}"
"""What stands before a completion. Placeholders: principles, question."""
PLACES = ("principles", "question")


@frozen
class Principle:
    """A principle in both of its forms."""

    text: Annotated[str, Field(min_length=1)]
    """What a better response is like."""
    negated: Annotated[str, Field(min_length=1)]
    """The opposite."""
    weight: Annotated[float, Field(ge=0.0)] = 1.0
    """How often it is drawn as a reward, against the others."""


def listed(texts: Sequence[str]) -> str:
    """Principles as one text."""
    return "; ".join(texts)
