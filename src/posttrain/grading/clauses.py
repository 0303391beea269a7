"""How similar two texts are, clause by clause: the mean over clauses of the best cosine with a clause of the other.

A clause ends with a comma, a semicolon, a colon, a full stop, a question or exclamation mark, or a line. It is embedded
as the counts of its pieces of one to three characters, without regard to case and runs of space, so that nothing has
to be loaded; cosines of counts are in [0, 1].
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

LONGEST = 3
"""Most characters of a piece."""
_ENDS = re.compile(r"[,;:.!?\n]+")


def clauses(text: str) -> tuple[str, ...]:
    """The clauses of a text, lower case, with single spaces."""
    return tuple(clause for part in _ENDS.split(text) if (clause := " ".join(part.lower().split())))


def similarity(text: str, other: str) -> float:
    """In [0, 1]: the mean over clauses of the best cosine with a clause of the other text; 0 without clauses."""
    own, theirs = clauses(text), clauses(other)
    if not own or not theirs:
        return 0.0
    return sum(max(_cosine(_embedded(a), _embedded(b)) for b in theirs) for a in own) / len(own)


@lru_cache(maxsize=4096)
def _embedded(clause: str) -> Mapping[str, int]:
    """Counts of the pieces of a clause; a space at either end marks where words begin and end."""
    text = f" {clause} "
    return Counter(text[i : i + n] for n in range(1, LONGEST + 1) for i in range(len(text) - n + 1))


def _cosine(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    if a == b:
        return 1.0
    product = sum(count * b.get(piece, 0) for piece, count in a.items())
    return product / math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
