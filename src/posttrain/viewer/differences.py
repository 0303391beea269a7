"""Word-level differences between two texts."""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

MOST_WORDS = 3000
"""Longer texts are compared by lines; by words it would take seconds."""


@dataclass(frozen=True, slots=True)
class Part:
    """A span of text that is in both texts or in one."""

    kind: Literal["same", "gone", "new"]
    text: str


def words(text: str) -> list[str]:
    """Splits a text into words, spaces and signs; joined, they are the text."""
    return re.findall(r"\w+|\s+|[^\w\s]", text)


def difference(before: str, after: str) -> list[Part]:
    """Spans in order: without the new ones they are `before`, without the gone ones `after`."""
    first, second = words(before), words(after)
    if max(len(first), len(second)) > MOST_WORDS:
        first, second = before.splitlines(keepends=True), after.splitlines(keepends=True)
    parts: list[Part] = []
    for operation, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if operation == "equal":
            parts.append(Part("same", "".join(first[a:b])))
            continue
        parts += [Part("gone", "".join(first[a:b]))] if b > a else []
        parts += [Part("new", "".join(second[c:d]))] if d > c else []
    return parts
