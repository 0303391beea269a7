"""Similarity of two texts, from 0 to 1: edit distance and ROUGE.

`fuzzy` is 1 minus the insertions and deletions that make one text the other, divided by the length of both (the ratio
of the library rapidfuzz). `rouge` is the F-measure of shared n-grams, `rouge_l` that of the longest common subsequence
(Lin 2004, ROUGE: a package for automatic evaluation of summaries), over lower-case words of letters and digits.
"""

import re
from collections import Counter
from collections.abc import Sequence

from posttrain.types import Task

LONGEST = 4000
"""Most characters, or words, of a text that is compared; time is quadratic in it."""


def fuzzy(text: str, other: str) -> float:
    """Twice the length of the longest common subsequence of characters, divided by both lengths."""
    total = len(text[:LONGEST]) + len(other[:LONGEST])
    return 2 * _common(text[:LONGEST], other[:LONGEST]) / total if total else 1.0


def copies(text: str, source: str, reference: str, share: float) -> bool:
    """Whether a translation is the source up to this share of the characters, and the reference, if any, is not."""
    near = fuzzy(text.lower(), source.lower()) >= share if source else False
    return near and not (reference and fuzzy(reference.lower(), source.lower()) >= share)


def source_of(task: Task) -> str:
    """What is translated: the field ``source``, or else the prompt; empty for messages."""
    source = task.fields.get("source", task.prompt)
    return source if isinstance(source, str) else ""


def rouge(text: str, other: str, n: int) -> float:
    """F-measure of shared n-grams; 0 where one text has none."""
    found, wanted = _grams(_words(text), n), _grams(_words(other), n)
    total = found.total() + wanted.total()
    return 2 * (found & wanted).total() / total if found and wanted else 0.0


def rouge_l(text: str, other: str, *, letters: bool = False) -> float:
    """F-measure of the longest common subsequence of words; 0 where one text has none.

    With `letters` words have the letters of every script, and not those from a to z only.
    """
    found, wanted = _words(text, letters), _words(other, letters)
    return 2 * _common(found, wanted) / (len(found) + len(wanted)) if found and wanted else 0.0


def cut(*texts: str, words: bool = False, letters: bool = False) -> str:
    """What an explanation adds where one of the texts is longer than what is compared; empty where none is."""
    if words:
        # as many characters as words and spaces between them have at least
        long = any(len(text) >= 2 * LONGEST and len(_words(text, letters, LONGEST + 1)) > LONGEST for text in texts)
        return f", of the first {LONGEST} words" if long else ""
    return f", of the first {LONGEST} characters" if any(len(text) > LONGEST for text in texts) else ""


def _words(text: str, letters: bool = False, most: int = LONGEST) -> list[str]:
    return re.findall(r"\w+" if letters else r"[a-z0-9]+", text.lower())[:most]


def _grams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """Length of the longest common subsequence, bit-parallel: one pass with whole numbers as bit sets (Hyyro 2004)."""
    places: dict[str, int] = {}
    for i, item in enumerate(left):
        places[item] = places.get(item, 0) | 1 << i
    mask = (1 << len(left)) - 1
    state = mask
    for item in right:
        shared = state & places.get(item, 0)
        state = ((state + shared) | (state - shared)) & mask
    return len(left) - state.bit_count()
