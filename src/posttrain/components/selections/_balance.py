"""The balance of exploration and exploitation of a selection of scored texts, and the search for its threshold.

Source: B-STaR, arXiv:2412.17256, and its released code (hkust-nlp/B-STaR at a0f5d95e, determine_hyper.py). With n texts
of a query selected, n' of them correct, and n* wanted, b = min(n' / n*, 1) n' / n; the score is the mean over queries
with a selected text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CAP: Final = 64
"""Most texts of a query, whatever is wanted in all."""
THRESHOLDS: Final = tuple(round(-1.0 + 0.01 * i, 2) for i in range(201))
"""-1 to 1 in steps of .01."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """A distinct text of a query."""

    text: str
    score: float
    right: bool


@dataclass(frozen=True, kw_only=True)
class Balance:
    """A threshold and what it selects."""

    threshold: float
    score: float
    """Mean balance; NaN where nothing is selected."""
    most: int
    """Texts of a query at most."""
    texts: int
    """Texts in all."""


def balance(right: int, selected: int, wanted: int) -> float:
    """B of one query: 0 where nothing is selected."""
    return min(right / wanted, 1.0) * right / selected if selected else 0.0


def picked(texts: Sequence[Text], threshold: float, most: int) -> list[Text]:
    """The texts above a threshold, the highest score first, at most `most`; of equals the first."""
    return sorted((t for t in texts if t.score > threshold), key=lambda t: -t.score)[:most]


def at(queries: Sequence[Sequence[Text]], threshold: float, *, target: int, wanted: int) -> Balance:
    """The balance at a threshold: texts of a query are allowed, one more at a time, until there are `target` in all."""
    ranked = [picked(texts, threshold, CAP) for texts in queries]
    most, total = 1, 0
    for most in range(1, CAP + 1):
        total = sum(min(len(own), most) for own in ranked)
        if total >= target or all(len(own) <= most for own in ranked):
            break
    own = [texts[:most] for texts in ranked if texts]
    scores = [balance(sum(t.right for t in texts), len(texts), wanted) for texts in own]
    mean = sum(scores) / len(scores) if scores else float("nan")
    return Balance(threshold=threshold, score=mean, most=most, texts=total)


def best(queries: Sequence[Sequence[Text]], *, target: int, wanted: int) -> Balance:
    """The threshold with the highest balance, the lowest of equals; a threshold that selects nothing is never taken.

    Raises `ValueError` where no text is above the lowest threshold.
    """
    known = sorted({t.score for texts in queries for t in texts})
    found: list[Balance] = []
    passed = -1
    for threshold in THRESHOLDS:
        below = sum(score <= threshold for score in known)
        if below != passed and below < len(known):  # otherwise it selects what the one before it does
            found.append(at(queries, threshold, target=target, wanted=wanted))
        passed = below
    if not found:
        raise ValueError("no text has a score above -1")
    return max(found, key=lambda one: one.score)
