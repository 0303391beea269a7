"""Annotators: simulated people who compare and rate texts, each with faults of its own.

An opinion is a number: of two texts, how much better the first one is, in units of quality; of one text, a score, or 1
for a statement that holds of it and -1 for one that does not. An annotator without a fault has the true one. Faults
are parts of one annotator where they stand in one list, and change its opinion one after another:

    annotators: [noise, [{kind: position, offset: 2}, noise], reversal]     # three annotators

Contract: what becomes of an opinion is a function of what is shown, of the opinion and of the draws; it is finite, or
None for one without a label. A quotation is a text.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from posttrain.component import Component


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What an annotator sees, besides the opinion that is true."""

    texts: tuple[str, ...] = ("",)
    """One text, or two in the order in which they are shown."""
    traits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Of two texts: what can be counted in each, by name."""
    writers: tuple[str, str] = ("", "")
    """Who wrote each of two texts; empty where it is not known."""
    middle: float = 0.0
    """The opinion that is neither: 0, or the middle of a scale of scores."""
    number: int = 0
    """How many things the annotator has seen before."""


class Annotator(Component):
    """Changes an opinion as a fault does."""

    @property
    def name(self) -> str:
        """What the annotator is called, before equal names are numbered."""
        return self.kind

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """The opinion, from the true one or from that of the fault before; None where there is no label."""
        return true

    def quotation(self, quote: str, rng: Random) -> str:
        """What is given as the evidence for a label, from words of its own text."""
        return quote

    @classmethod
    def from_items(cls, items: Sequence[Any]) -> Any:
        """A list is one annotator with several faults."""
        return {"kind": "several", "parts": items}


def named(annotators: Sequence[Annotator]) -> list[tuple[str, Annotator]]:
    """Each annotator with a name of its own: ``noise``, ``noise 2``, ``position+noise``."""
    seen: Counter[str] = Counter()
    found = []
    for annotator in annotators:
        seen[annotator.name] += 1
        number = seen[annotator.name]
        found.append((annotator.name if number == 1 else f"{annotator.name} {number}", annotator))
    return found


def _listed(value: Any) -> Any:
    """Refuse what is no list: a number of annotators, or one of them by itself."""
    if not isinstance(value, list | tuple):
        raise PydanticCustomError(
            "annotators",
            "annotators are a list with an entry for each of them, since each has its own faults; got {got}; write "
            "[noise, {kind: position, offset: 2}], or [[position, noise]] for one with two faults",
            {"got": f"{value!r:.60}"},
        )
    return value


Annotators = Annotated[tuple[Annotator, ...], BeforeValidator(_listed), Field(max_length=1000)]
"""A list of annotators as a field of tasks."""
