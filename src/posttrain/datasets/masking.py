"""Paragraphs with masked entities, to be restored by search.

Source: the generator of MaskSearch (RAMP), arXiv:2505.20285. Entities that stand more than once in the paragraph, and
the title, are left out. With four or more left, four are drawn, with three all three draws are made, with one or two
between one and all of them; none leaves the paragraph out. Draws are with replacement, weighted by the number of words;
an entity that is only digits has the largest weight. An entity that is drawn twice is masked once. The title is put in
front where the paragraph does not have it, and a paragraph that would begin with a mask is left out.

Differs: the release deletes entities from the list that it walks through, so that some that stand twice survive. It
stores how many were drawn; here it is how many are masked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

MASK: Final = "[mask]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A paragraph to be restored."""

    text: str
    """With masks."""
    whole: str
    """Without."""
    masks: int
    """Masks in the text."""


def candidates(title: str, text: str, entities: Sequence[str]) -> list[str]:
    """Entities that may be masked, each once, in their order."""
    once = [e for e in dict.fromkeys(entities) if e and text.count(e) == 1]
    return [e for e in once if e.lower() != title.lower()]


def masked(title: str, text: str, entities: Sequence[str], rng: Random) -> Paragraph | None:
    """A paragraph with some entities masked; None where none can be, or where it would begin with a mask."""
    left = candidates(title, text, entities)
    if not left:
        return None
    draws = min(len(left), 4) if len(left) > 2 else rng.randint(1, len(left))
    words = [len(entity.split()) for entity in left]
    weights = [max(words) if entity.isdecimal() else own for entity, own in zip(left, words, strict=True)]
    chosen = set(rng.choices(left, weights, k=draws))
    whole = text if title.lower() in text.lower() else f"{title}: {text}"
    hidden = whole
    for entity in chosen:
        hidden = hidden.replace(entity, MASK, 1)
    if hidden.startswith(MASK):
        return None
    return Paragraph(text=hidden, whole=whole, masks=len(chosen))
