"""Rankings of numbered passages: what a reply says, how good an order is, and windows over more than fit in a prompt.

Source: ReasonRank, arXiv:2508.07050, and its release (8421BCD/ReasonRank: ranking.py, rerank/rankllm.py). Passages have
the numbers 1 to n. A relevant passage has the gain 1, at rank r with the discount 1 / log2(r + 1).
"""

import re
from collections.abc import Callable, Sequence, Set
from math import log2
from typing import Final

MARKS: Final = ("<think>", "</think>", "<answer>", "</answer>")
_FREE = re.compile(r"[0-9\s,;>\[\]]*")
_DIGITS = re.compile(r"[0-9]+")
_LONG: Final = 9
"""Digits of a number; one with more is no passage's."""


def answer_of(text: str) -> str | None:
    """What stands between the first answer tags after the first thoughts; None where a tag is missing."""
    place = 0
    for mark in MARKS[:-1]:
        found = text.find(mark, place)
        if found < 0:
            return None
        place = found + len(mark)
    end = text.find(MARKS[-1], place)
    return None if end < 0 else text[place:end]


def read_ids(answer: str) -> list[int]:
    """Every number in a text, whatever stands between them; 0 for one that is too long."""
    return [int(digits) if len(digits) <= _LONG else 0 for digits in _DIGITS.findall(answer)]


def is_plain(answer: str) -> bool:
    """Whether a text has nothing but numbers, brackets, and marks between them."""
    return _FREE.fullmatch(answer) is not None


def is_order(ids: Sequence[int], count: int) -> bool:
    """Whether every passage from 1 to `count` is there once, and no other."""
    return sorted(ids) == list(range(1, count + 1))


def ndcg(order: Sequence[int], relevant: Set[int], at: int) -> float:
    """Discounted gain of the first `at` ranks, over that of the best order of all relevant passages."""
    gained = sum(1 / log2(rank + 1) for rank, own in enumerate(order[:at], 1) if own in relevant)
    return gained / sum(1 / log2(rank + 1) for rank in range(1, min(at, len(relevant)) + 1))


def recall(order: Sequence[int], relevant: Set[int], at: int) -> float:
    """Share of the relevant passages that is among the first `at`."""
    return len(relevant & set(order[:at])) / len(relevant)


def average_overlap(first: Sequence[int], second: Sequence[int]) -> float:
    """Rank-biased overlap at p = 1: the mean, over depths, of the share of the first d that two orders have both."""
    seen: tuple[set[int], set[int]] = set(), set()
    total, depths = 0.0, min(len(first), len(second))
    for depth in range(depths):
        seen[0].add(first[depth])
        seen[1].add(second[depth])
        total += len(seen[0] & seen[1]) / (depth + 1)
    return total / depths


def repaired(ids: Sequence[int], count: int) -> list[int]:
    """An order of 1 to `count`: the first mention of each counts, others are left out, missing ones come last."""
    known = [own for own in dict.fromkeys(ids) if 1 <= own <= count]
    return [*known, *(own for own in range(1, count + 1) if own not in set(known))]


def windows(count: int, width: int, step: int) -> list[tuple[int, int]]:
    """Places [start, end) of windows from the bottom to the top; the last begins at 0, and no further one is needed."""
    found = []
    end = count
    while True:
        start = max(0, end - width)
        found.append((start, end))
        if start == 0:
            return found
        end -= step


def slide(order: Sequence[int], ranked: Callable[[Sequence[int]], Sequence[int]], width: int, step: int) -> list[int]:
    """One pass of windows: each is put in the order that `ranked` gives for its passages, as places from 1."""
    found = list(order)
    for start, end in windows(len(found), width, step):
        own = found[start:end]
        found[start:end] = [own[place - 1] for place in repaired(ranked(own), len(own))]
    return found


def ranked(scores: Sequence[float], relevant: Sequence[bool], *, optimistic: bool = False) -> list[bool]:
    """Whether the passage on each rank is relevant, the highest score first; among equals relevant ones come last.

    With `optimistic` they come first, so that equal scores for all are as good as the best order.
    """
    places = sorted(range(len(scores)), key=lambda i: (-scores[i], relevant[i] != optimistic))
    return [relevant[i] for i in places]


def reciprocal_rank(ranks: Sequence[bool], at: int) -> float:
    """One over the rank of the first relevant passage among the first `at`; 0 where there is none."""
    return next((1.0 / rank for rank, own in enumerate(ranks[:at], 1) if own), 0.0)


def gain(ranks: Sequence[bool], at: int) -> float:
    """NDCG of relevance by rank; 0 where nothing is relevant."""
    relevant = {place for place, own in enumerate(ranks) if own}
    return ndcg(range(len(ranks)), relevant, at) if relevant else 0.0
