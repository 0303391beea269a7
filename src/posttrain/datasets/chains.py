"""Chains as tokens: the meaning of each id where a flow (`posttrain.policies.flow`) samples points instead of text.

With K steps from noise to the end point, a token's id determines the meaning of its vector:

    0                    the condition, such as an observation
    1 + k                the point after k steps, 0 <= k <= K; a chain that is one token has the id of its end, 1 + K
    K + 2 + k            a draw: noise that an end point is mixed with, at the share 1 - k/K, 0 <= k < K

A condition precedes all tokens that depend on it, and an end point its draws.
"""

from collections.abc import Sequence

import numpy as np

from posttrain.errors import UserError
from posttrain.types import FloatArray, IntArray, Segment

CONDITION = 0


def steps_of(end_id: int) -> int:
    """K, from the id of an end point."""
    return end_id - 1


def draws(end_id: int, places: Sequence[int], width: int, rng: np.random.Generator) -> Segment:
    """Draws of fresh noise at some of the K steps, for flow matching with the end point before them."""
    return Segment(
        actor="draw",
        token_ids=np.array([end_id + 1 + k for k in places], np.int64),
        trained=True,
        vectors=rng.standard_normal((len(places), width)).astype(np.float32),
    )


def stratified(places: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
    """One place from each of `count` equal strata of `places`, which may be fewer."""
    edges = np.linspace(0.0, len(places), count + 1)
    drawn = edges[:-1] + rng.random(count) * np.diff(edges)
    return [places[min(int(at), len(places) - 1)] for at in drawn]


def read_point(text: str, numbers: int, what: str) -> FloatArray:
    """Parse the numbers of a point. Raises `UserError` for other text."""
    parts = text.replace(",", " ").split()
    try:
        point = np.array([float(part) for part in parts], np.float32)
    except ValueError:
        point = np.full(len(parts), np.nan, np.float32)
    if len(point) != numbers or not np.isfinite(point).all():
        raise UserError(f"{what} must be {numbers} numbers with spaces between them, got {text[:80]!r}")
    return point


def write_point(point: FloatArray) -> str:
    """A point as text, without rounding."""
    return " ".join(str(np.float32(number)) for number in point)


def padded(rows: FloatArray, width: int) -> FloatArray:
    """[T, width] rows with zeros after their own numbers."""
    return np.pad(np.asarray(rows, np.float32), ((0, 0), (0, width - rows.shape[1])))


def condition_segment(
    numbers: FloatArray, width: int, *, actor: str = "prompt", turn: int = 0, text: str = ""
) -> Segment:
    """The condition of a chain, as a token."""
    ids: IntArray = np.array([CONDITION], np.int64)
    vectors = padded(np.asarray(numbers, np.float32)[None], width)
    return Segment(actor=actor, token_ids=ids, turn=turn, text=text, vectors=vectors)
