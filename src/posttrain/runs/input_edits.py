"""Edits of inputs of a function: of numbers, of characters, and with constants of the program."""

import ast
import math
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from posttrain.grading.line_coverage import fits

LONGEST: Final = 4000
"""Most bytes of an input."""
LONGEST_PIECE: Final = 40
"""Most bytes of a constant that is put into an input."""
TRIED: Final = 8
"""Edits of characters until one keeps the types that are annotated."""


def parsed(form: str, content: bytes, kinds: Sequence[str] = ()) -> tuple[Any, ...] | None:
    """The arguments of an input; None where it is not of the form, or of another type than is annotated."""
    if form == "bytes":
        return (content,)
    text = content.decode("utf-8", "replace")
    if form == "str":
        return (text,)
    try:
        given = ast.literal_eval(f"({text.strip().removesuffix(',')},)") if text.strip() else ()
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None
    return given if isinstance(given, tuple) and fits(given, kinds) else None


def edited(content: bytes, form: str, rng: Random, constants: Sequence[Any] = (), kinds: Sequence[str] = ()) -> bytes:
    """An input with one to four edits: of numbers for literals, of characters for the rest.

    `constants` of the program are put in now and then. What parameters are annotated with (`kinds`) they stay.
    """
    own_numbers = [own for own in constants if type(own) in (int, float)]
    pieces = [own if isinstance(own, bytes) else str(own).encode("utf-8", "replace") for own in constants]
    pieces = [own for own in pieces if len(own) <= LONGEST_PIECE]
    typed = form == "literals" and any(kinds)
    for _ in range(rng.choice((1, 1, 2, 4))):
        given = parsed(form, content) if form == "literals" else None
        numbers = [i for i, own in enumerate(given or ()) if type(own) in (int, float)]
        if given and numbers and rng.random() < 0.9:
            place = rng.choice(numbers)
            step = rng.choice((1, 2, 3, 5, 10, 100)) * rng.choice((1, -1))
            value = (
                given[place] + step
                if rng.random() < 0.7
                else rng.choice((0, -1, 10**9, rng.randint(-999, 999), *own_numbers))
            )
            value = round(value) if kinds[place : place + 1] == ("int",) and math.isfinite(value) else value
            changed = ", ".join(map(repr, (*given[:place], value, *given[place + 1 :]))).encode()
        else:
            changed = _with_edit(content, rng, pieces)
        for _ in range(TRIED if typed else 0):
            if parsed(form, changed, kinds) is not None:
                break
            changed = _with_edit(content, rng, pieces)
        else:
            changed = content if typed else changed
        content = changed
    return content[:LONGEST]


def _with_edit(content: bytes, rng: Random, pieces: Sequence[bytes]) -> bytes:
    """A text with one edit of characters."""
    place = rng.randint(0, len(content))
    what = rng.random()
    if what < 0.4:
        return content[:place] + _piece(rng, pieces) + content[place:]
    if what < 0.7:
        return content[:place] + _piece(rng, pieces) + content[place + 1 :]
    if what < 0.9:
        return content[:place] + content[place + rng.randint(1, 4) :]
    return content[:place] + content[rng.randint(0, place) : place] + content[place:]


def _piece(rng: Random, pieces: Sequence[bytes]) -> bytes:
    """A few characters to insert."""
    if pieces and rng.random() < 0.25:
        return rng.choice(pieces)
    return rng.choice((bytes([rng.randrange(32, 127)]), rng.choice(_PIECES), bytes([rng.randrange(256)])))


_PIECES: Final = (
    b"0",
    b"-1",
    b"9" * 20,
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b'"',
    b"'",
    b"\\",
    b"\n",
    b",",
    b":",
    b"=",
)
