"""Word-level differences between two texts."""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

MOST_WORDS = 3000
"""Longer texts are compared by lines: words would take seconds."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of text that both have, or only one of them."""

    kind: Literal["same", "gone", "new"]
    text: str


def words(text: str) -> list[str]:
    """Words, spaces and signs, which together are the text."""
    return re.findall(r"\w+|\s+|[^\w\s]", text)


def difference(before: str, after: str) -> list[Part]:
    """Stretches in order: without the new ones they are `before`, without the gone ones `after`."""
    first, second = words(before), words(after)
    if max(len(first), len(second)) > MOST_WORDS:
        first, second = before.splitlines(keepends=True), after.splitlines(keepends=True)
    parts: list[Part] = []
    for what, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if what == "equal":
            parts.append(Part("same", "".join(first[a:b])))
            continue
        parts += [Part("gone", "".join(first[a:b]))] if b > a else []
        parts += [Part("new", "".join(second[c:d]))] if d > c else []
    return parts
