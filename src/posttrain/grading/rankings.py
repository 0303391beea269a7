"""A judge's scores of several candidates in JSON, read as RewardAnything's release reads them.

    <think>...</think>{"scores": {"model-1": 3, "model-2": 5}, "best-to-worst": ["model-2", "model-1"]}

Source: arXiv:2506.03318 and its release: the block of thoughts and marks of code are dropped, then the rest is read as
JSON, as JSON after a repair (single quotes, bare keys, commas before a bracket), or as what stands between its first
``{`` and its last ``}``, in this order.

Differs: repeated keys, NaN and scores that are no number are refused (`posttrain.grading.strict_json`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from posttrain.grading.strict_json import BadJSON, read_json

SCORES: Final = "scores"
ORDERS: Final = ("best-to-worst", "best-to-worse")
_FENCE = re.compile(r"```[a-z]{0,20}")
_BARE = re.compile(r"([{,]\s{0,20})([A-Za-z_][\w-]{0,60})(\s{0,20}:)")
_COMMA = re.compile(r",(\s{0,20}[}\]])")
_LONG_THOUGHT: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """What a reply says about candidates."""

    scores: Mapping[str, float]
    """By name; empty where they cannot be read."""
    order: tuple[str, ...] = ()
    """Names, the best first."""
    thought: str | None = None
    """The text of the thoughts; None without both tags."""
    tags: int = 0
    """How many of both tags of the thoughts are there."""
    parsed: bool = False
    """Whether JSON was read."""
    cut: bool = False
    """Whether it had to be cut out of other text."""
    keys: int = 0
    """How many of the keys of scores and order are there."""


def read_ranking(text: str) -> Ranking:
    """The ranking in a reply; one without scores for text that has none."""
    opened, closed = "<think>" in text, "</think>" in text
    before, _, rest = text.rpartition("</think>")
    body = _FENCE.sub("", rest if closed else text).strip()
    value, cut = _value(body)
    thought = before.partition("<think>")[2] if opened and closed else None
    keys = 0 if value is None else (SCORES in value) + any(name in value for name in ORDERS)
    scores, order = (
        (value or {}).get(SCORES),
        next(((value or {})[name] for name in ORDERS if name in (value or {})), ()),
    )
    return Ranking(
        scores=_numbers(scores) if isinstance(scores, Mapping) else {},
        order=tuple(name for name in order if isinstance(name, str)) if isinstance(order, list) else (),
        thought=thought,
        tags=opened + closed,
        parsed=value is not None,
        cut=cut,
        keys=keys,
    )


def _value(body: str) -> tuple[Mapping[str, Any] | None, bool]:
    """The object of a text, and whether it was cut out of it."""
    for text, cut in (
        (body, False),
        (_repaired(body), False),
        (_between(body), True),
        (_repaired(_between(body)), True),
    ):
        try:
            value = read_json(text)
        except BadJSON:
            continue
        if isinstance(value, Mapping):
            return value, cut
    return None, False


def _between(text: str) -> str:
    return text[text.find("{") : text.rfind("}") + 1] if "{" in text else ""


def _repaired(text: str) -> str:
    """Single quotes as double ones, bare keys in quotes, no comma before a bracket."""
    return _COMMA.sub(r"\1", _BARE.sub(r'\1"\2"\3', text.replace("'", '"')))


def _numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    return {n: float(x) for n, x in scores.items() if isinstance(x, int | float) and not isinstance(x, bool)}


def order_reward(scores: Mapping[str, float], gold: Mapping[str, float]) -> float | None:
    """1 less the weighed share of pairs whose order is wrong: weights are 1 and the distance of the gold scores.

    A tie of what gold distinguishes costs half; where gold ties, nothing is wrong. None for fewer than two candidates
    that both have, which the release rewards with 1.
    """
    names = sorted(scores.keys() & gold.keys())
    if len(names) < 2:
        return None
    total = lost = 0.0
    for a, b in combinations(names, 2):
        distance, found = gold[a] - gold[b], scores[a] - scores[b]
        weight = 1 + abs(distance)
        total += weight
        if distance:
            lost += weight * (0.5 if found == 0 else float(found * distance < 0))
    return 1 - lost / total


def best_reward(scores: Mapping[str, float], gold: Mapping[str, float]) -> float | None:
    """1 where one of the best candidates has a larger score than all worse ones, else 0; None for fewer than two."""
    names = scores.keys() & gold.keys()
    if len(names) < 2:
        return None
    best = max(gold[name] for name in names)
    tops = [scores[name] for name in names if gold[name] == best]
    return float(max(tops) > max((scores[name] for name in names if gold[name] < best), default=float("-inf")))


def format_reward(ranking: Ranking, names: Sequence[str]) -> float:
    """0 to 1: thoughts 0.2, JSON 0.2, keys 0.1 each, scores of all names 0.2, an order that agrees with them 0.2."""
    value = 0.15 + 0.05 * (len(ranking.thought) > _LONG_THOUGHT) if ranking.thought is not None else 0.05 * ranking.tags
    value += (0.15 if ranking.cut else 0.20) * ranking.parsed + 0.10 * ranking.keys
    if names:
        value += 0.20 * sum(name in ranking.scores for name in names) / len(names)
    return min(1.0, value + 0.20 * agreement(ranking))


def agreement(ranking: Ranking) -> float:
    """Share of pairs of the order whose scores do not increase; 0 for fewer than two names with a score."""
    names = [name for name in dict.fromkeys(ranking.order) if name in ranking.scores]
    pairs = list(combinations(names, 2))
    return sum(ranking.scores[a] >= ranking.scores[b] for a, b in pairs) / len(pairs) if pairs else 0.0
