"""How surprising observations are, and whose turn it is when two roles alternate in rounds."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

FLOOR: Final = 1e-3
"""Smallest probability of a word."""
SYMBOLS: Final = 10
"""K of the uniform distribution before anything was stored."""
GREATEST: Final = -math.log(FLOOR)
"""Surprise of a word at the floor, in nats; rewards are in this unit."""


class Density:
    """A categorical distribution of the word at each place of an observation, by counts."""

    def __init__(self) -> None:
        self.counts: list[Counter[str]] = []
        self.number = 0

    def logp(self, words: Sequence[str]) -> float:
        """Sum over places of the log-probability of the word there, in nats, each at least that of the floor."""
        return sum(self._logp(place, word) for place, word in enumerate(words))

    def _logp(self, place: int, word: str) -> float:
        if not self.number:
            return -math.log(SYMBOLS)
        seen = self.counts[place][word] if place < len(self.counts) else 0
        return math.log(max(seen / self.number, FLOOR))

    def add(self, words: Sequence[str]) -> None:
        """Store an observation."""
        self.counts += [Counter() for _ in range(len(words) - len(self.counts))]
        for place, word in enumerate(words):
            self.counts[place][word] += 1
        self.number += 1

    def shown(self) -> str:
        """The likeliest word of each place with its share in tenths; of equals the first in the alphabet."""
        best = (min(own.items(), key=lambda item: (-item[1], item[0])) for own in self.counts if own)
        return " ".join(f"{word} {round(9 * count / self.number)}" for word, count in best) or "none"


class Turn(NamedTuple):
    """A turn of a game in rounds."""

    round: int
    controls: bool
    """Whether Control acts; Explore acts in rounds 0, 2, ..."""
    scored: bool
    """Whether the observation after it is scored and stored."""
    last: bool
    """Whether it is the last of its round."""


def turn_of(number: int, length: int, quiet: float) -> Turn:
    """The n-th turn, from 0, with rounds of `length` turns, of which a share at the start is quiet for Control."""
    round_number, place = divmod(number, length)
    controls = round_number % 2 == 1
    return Turn(
        round=round_number, controls=controls, scored=controls and place >= quiet * length, last=place == length - 1
    )
