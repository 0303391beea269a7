"""Lists of words of which some are wanted, and their labels: two attributes of a text that pull apart."""

from collections.abc import Sequence
from typing import Final

WORDS: Final = ("fox", "bee", "owl", "cow", "hen", "ant", "elk", "rat", "pig", "dog")
WANTED: Final = WORDS[:2]
LONGEST: Final = 12
TOP: Final = 4.0
"""The largest label."""


def written(words: Sequence[str]) -> str:
    """The words as a completion."""
    return f" {' '.join(words)}."


def labels_of(text: str, wanted: Sequence[str]) -> dict[str, float]:
    """Helpfulness and verbosity of a list, from 0 to 4."""
    words = text.replace(".", " ").split()
    right = sum(word in wanted for word in words)
    return {
        "helpfulness": TOP * right / max(len(words), 1),
        "verbosity": TOP * min(len(words) / LONGEST, 1.0),
    }
