"""Tokens with their signals, prepared for colouring.

A colouring shows one number of every token. Signed numbers (advantage, a difference of log-probabilities) have a colour
on each side of zero and are scaled by the largest of the page. Unsigned numbers have a fixed scale, so that pages can
be compared.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.runs.readings import number
from posttrain.runs.token_text import Piece, TokenTexts
from posttrain.signals import logp_of

Row = Mapping[str, Any]

MOST_TOKENS = 4000
"""Of a rollout; a note has the number of others, unless all are requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Colouring:
    """A number of a token, and its scale."""

    name: str
    label: str
    signed: bool = False
    full: float | None = None
    """The value at full strength; None is the largest on the page."""


KNOWN = (
    Colouring(name="advantage", label="advantage", signed=True),
    Colouring(name="surprise", label="surprise: minus log-probability, nats", full=4.0),
    Colouring(name="entropy", label="entropy, nats", full=2.0),
    Colouring(name="log_ratio", label="log ratio: learner against the start of the step", signed=True),
    Colouring(name="gap", label="gap: learner minus sampler, log-probability", signed=True),
    Colouring(name="value", label="value", signed=True),
)


def colourings(rows: Sequence[Row], roles: Iterable[str] = ()) -> list[Colouring]:
    """The colourings with recorded values in `rows`; the log-probabilities of other `roles` come last."""
    others = sorted(logp_of(role).column for role in roles)
    possible = [*KNOWN, *(Colouring(name=name, label=name.replace("_", " "), full=4.0) for name in others)]
    values = [_numbers(row, others) for row in rows]
    return [c for c in possible if any(v is not None for own in values for v in own.get(c.name, ()))]


def marked(
    rows: Sequence[Row],
    texts: TokenTexts | None,
    colouring: Colouring | None,
    *,
    roles: Iterable[str] = (),
    most: int | None = MOST_TOKENS,
) -> list[dict[str, Any]]:
    """For each rollout its ``segments``, each with ``pieces`` of text, and how many tokens were ``left_out``.

    A piece has its ``text``, ``strength`` in [0, 1], whether it is ``below`` zero, and ``numbers`` as text.
    """
    others = sorted(logp_of(role).column for role in roles)
    numbers = [_numbers(row, others) for row in rows]
    largest = 0.0
    if colouring is not None:
        largest = colouring.full or max(
            (abs(v) for own in numbers for v in own.get(colouring.name, ()) if v is not None), default=0.0
        )
    return [_one(row, own, texts, colouring, largest, most) for row, own in zip(rows, numbers, strict=True)]


def _one(
    row: Row,
    numbers: Mapping[str, Sequence[float | None]],
    texts: TokenTexts | None,
    colouring: Colouring | None,
    largest: float,
    most: int | None,
) -> dict[str, Any]:
    token_ids: Sequence[int] = row["token_ids"]
    shown = len(token_ids) if most is None else min(most, len(token_ids))
    segments, at = [], 0
    for segment in row["segments"]:
        end = min(at + segment["length"], shown)
        own = token_ids[at:end]
        plain = [Piece(i, i + 1, f"[{token_id}]") for i, token_id in enumerate(own)]
        pieces = [
            _piece(piece, at, numbers, colouring, largest, row) for piece in (texts.pieces(own) if texts else plain)
        ]
        segments.append({**segment, "pieces": pieces})
        at = end
        if at == shown:
            break
    return {"segments": segments, "left_out": len(token_ids) - shown, "length": len(token_ids)}


def _piece(
    piece: Piece,
    start: int,
    numbers: Mapping[str, Sequence[float | None]],
    colouring: Colouring | None,
    largest: float,
    row: Row,
) -> dict[str, Any]:
    """A piece of text with the numbers of its first token."""
    at = start + piece.start
    values_here = {name: values[at] for name, values in numbers.items() if values[at] is not None}
    value = values_here.get(colouring.name) if colouring else None
    ids = row["token_ids"][at : start + piece.end]
    described = [
        f"token {' '.join(map(str, ids))} at {at}",
        *(f"{name.replace('_', ' ')} {number(v)}" for name, v in values_here.items()),
    ]
    return {
        "text": piece.text,
        "trained": row["trained"][at],
        "strength": 0.0 if value is None or not largest else round(min(1.0, abs(value) / largest), 2),
        "below": value is not None and value < 0 and colouring is not None and colouring.signed,
        "numbers": ", ".join(described),
    }


def _numbers(row: Row, others: Sequence[str]) -> dict[str, list[float | None]]:
    """By name, a number or None for each token of a rollout."""

    def column(name: str) -> list[float | None] | None:
        values = row.get(name)
        return None if values is None else [None if v is None or math.isnan(v) else float(v) for v in values]

    sampled, trained = column("sampled_logp"), column("trained_logp")
    likely = [b if a is None else a for a, b in zip(sampled or trained or [], trained or sampled or [], strict=True)]
    found = {
        "advantage": column("advantage"),
        "surprise": [None if v is None else -v for v in likely] or None,
        "entropy": column("entropy"),
        "log_ratio": _each(column("ratio"), lambda r: math.log(r) if r > 0 else None),
        "gap": [None if a is None or b is None else a - b for a, b in zip(trained, sampled, strict=True)]
        if trained and sampled
        else None,
        "value": column("value"),
    }
    found |= {name: column(name) for name in others}
    return {name: values for name, values in found.items() if values is not None}


def _each(values: list[float | None] | None, change: Any) -> list[float | None] | None:
    return None if values is None else [None if v is None else change(v) for v in values]
