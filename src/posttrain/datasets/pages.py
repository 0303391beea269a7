"""Pages about made-up people, and a search over them by BM25.

A page has a name, a town, a job and a friend: ``balo lives in kesh, works as baker, is a friend of mina.`` BM25 has its
usual settings, k1 1.5 and b 0.75, over words in lower case.

Source: the toy corpus of the smallest experiment of MaskSearch, arXiv:2505.20285; BM25: Robertson and Zaragoza 2009,
doi:10.1561/1500000019.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

SYLLABLES: Final = ("ba", "lo", "mi", "na", "ke", "tu", "ri", "so", "pa", "de", "fu", "gi")
TOWNS: Final = ("kesh", "tarn", "ulm", "vik", "wells", "york")
JOBS: Final = ("baker", "judge", "nurse", "pilot", "smith", "clerk")
MOST: Final = len(SYLLABLES) ** 2
"""People at most."""
K1: Final = 1.5
B: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is known of a person."""

    name: str
    town: str
    job: str
    friend: str

    @property
    def text(self) -> str:
        """The page."""
        return f"{self.name} lives in {self.town}, works as {self.job}, is a friend of {self.friend}."


def pages(size: int) -> tuple[Page, ...]:
    """The first `size` people, the same ones whatever the size; friends are among them."""
    rng = Random("pages")
    names = [a + b for a in SYLLABLES for b in SYLLABLES]
    rng.shuffle(names)
    found = []
    for place, name in enumerate(names[:size]):
        own = Random(f"pages:{name}")
        friend = names[(place + own.randint(1, max(1, size - 1))) % size]
        found.append(Page(name=name, town=own.choice(TOWNS), job=own.choice(JOBS), friend=friend))
    return tuple(found)


class Index:
    """Texts to be searched."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._words = [Counter(_words(text)) for text in texts]
        self._lengths = [sum(words.values()) for words in self._words]
        self._mean = sum(self._lengths) / max(1, len(texts))
        self._having = Counter(word for words in self._words for word in words)

    def best(self, query: str) -> int | None:
        """Place of the text of the highest score; of equals the first. None where no text has a word of the query."""
        scores = [self.score(query, place) for place in range(len(self._words))]
        top = max(scores, default=0.0)
        return scores.index(top) if top > 0 else None

    def score(self, query: str, place: int) -> float:
        """BM25 of a text for a query."""
        words, total = self._words[place], 0.0
        length = K1 * (1 - B + B * self._lengths[place] / self._mean)
        for word in set(_words(query)):
            having = self._having[word]
            rarity = math.log(1 + (len(self._words) - having + 0.5) / (having + 0.5))
            total += rarity * words[word] * (K1 + 1) / (words[word] + length)
        return total


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
