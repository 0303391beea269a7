"""Principles in written feedback: which are supported by a quotation, and which do annotators agree on?

Source: RLBFF, arXiv:2509.21319, from a detailed note: a model extracts principles with Yes or No from each annotator's
text, with a quotation as evidence. What is kept: quotations that match a part of the text by more than 60 of 100,
whole labels ("partially" is dropped), other principles than helpfulness; of these, principles that every other
annotator of the response has as well, by a similarity above 0.8.

Differs: similarity is the cosine of counts of three-letter parts, where the paper has embeddings. The labels of matched
principles must agree too, which the paper does not state. A response with a single annotator has no consensus.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from posttrain.grading.similarity import fuzzy

DROPPED: Final = ("helpfulness", "helpful")
"""Principles that say nothing of their own."""
LABELS: Final = {"yes": True, "no": False}
LONGEST: Final = 400
"""Characters of a quotation that are compared."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A principle, and whether a response satisfies it."""

    principle: str
    satisfied: bool


def entries(annotator: Mapping[str, Any], evidence: float = 60.0) -> list[Entry]:
    """The principles of an annotator whose quotation stands in the text, in order."""
    text, found = str(annotator.get("text", "")), []
    for one in annotator.get("principles", ()):
        principle, label = str(one.get("principle", "")).strip(), str(one.get("label", "")).strip().casefold()
        if not principle or principle.casefold() in DROPPED or label not in LABELS:
            continue
        if evidence and partial(str(one.get("evidence", "")), text) <= evidence:
            continue
        found.append(Entry(principle, LABELS[label]))
    return found


def agreed(feedback: Sequence[Mapping[str, Any]], *, evidence: float = 60.0, similar: float = 0.8) -> list[Entry]:
    """The first annotator's principles that every other one has with the same label; none for a single annotator."""
    first, *others = [entries(annotator, evidence) for annotator in feedback] or [[]]
    if not others:
        return []
    return [entry for entry in first if all(any(_same(entry, one, similar) for one in own) for own in others)]


def _same(entry: Entry, other: Entry, similar: float) -> bool:
    return entry.satisfied == other.satisfied and alike(entry.principle, other.principle) > similar


def partial(quotation: str, text: str) -> float:
    """0 to 100: the best match of a quotation with a part of a text that is as long; 0 for an empty one."""
    quotation, text = quotation.strip().casefold()[:LONGEST], text.casefold()
    if not quotation or not text:
        return 0.0
    if quotation in text:
        return 100.0
    short, long = sorted((quotation, text), key=len)
    width = len(short)
    return 100 * max(fuzzy(short, long[start : start + width]) for start in range(max(1, len(long) - width + 1)))


def alike(principle: str, other: str) -> float:
    """Cosine of the counts of three-letter parts of two principles, in any case; 1 for equal ones."""
    a, b = _parts(principle), _parts(other)
    shared = sum(a[part] * b[part] for part in a.keys() & b.keys())
    size = math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
    return shared / size if size else 0.0


def _parts(text: str) -> Counter[str]:
    padded = f"  {' '.join(text.casefold().split())} "
    return Counter(padded[i : i + 3] for i in range(len(padded) - 2))
