"""Traits of answers to "What is 14 + 40, Ada?" that code can count.

right      1 where the sum that is stated is right
polite     1 with "please"
length     words
name       1 where the reader is named
question   1 with a question mark
keyword    1 with "therefore"
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SUM: Final = re.compile(r"(\d{1,4}) \+ (\d{1,4}) = (\d{1,5})")
KEYWORD: Final = "therefore"
WEIGHTS: Final[Mapping[str, float]] = MappingProxyType({"right": 2.0, "polite": 1.0, "name": 0.5, "question": 0.5})
"""Gold: what each of a trait adds to the quality of an answer; others add nothing."""


def traits(text: str, name: str) -> dict[str, float]:
    """The traits of an answer to a reader."""
    found = SUM.search(text)
    return {
        "right": float(found is not None and int(found[1]) + int(found[2]) == int(found[3])),
        "polite": float("please" in text),
        "length": float(len(text.split())),
        "name": float(name in text),
        "question": float("?" in text),
        "keyword": float(KEYWORD in text),
    }


def quality(counted: Mapping[str, float], weights: Mapping[str, float] = WEIGHTS) -> float:
    """The sum of the weights of what an answer has."""
    return sum(weight * counted[trait] for trait, weight in weights.items())
