"""Reads JSON from a model: bounded depth and size, no repeated keys, no NaN, values compared by type."""

import json
from typing import Any, Final, NoReturn

DEEPEST: Final = 64
LONGEST: Final = 100_000
"""Characters."""
LONGEST_NUMBER: Final = 4000
"""Digits; Python refuses longer whole numbers by itself."""


class BadJSON(ValueError):
    """Why a text is not accepted."""


def read_json(text: str) -> Any:
    """The value of a text. Raises `BadJSON` for anything but one value within the bounds."""
    if len(text) > LONGEST:
        raise BadJSON(f"has {len(text)} characters, {LONGEST} are read")
    if _depth(text) > DEEPEST:
        raise BadJSON(f"is nested more than {DEEPEST} deep")
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)
    except BadJSON:
        raise
    except (ValueError, RecursionError):
        raise BadJSON("is no JSON") from None


def object_in(text: str) -> dict[str, Any] | None:
    """The object from the first opening bracket of a text to the last closing one; None where there is none."""
    start, end = text.find("{"), text.rfind("}")
    try:
        found = read_json(text[start : end + 1]) if 0 <= start < end else None
    except BadJSON:
        return None
    return found if isinstance(found, dict) else None


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal and of the same types: 1, 1.0 and true are three values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def _depth(text: str) -> int:
    """Largest number of open brackets outside texts."""
    deepest = depth = 0
    inside = escaped = False
    for letter in text:
        if inside:
            inside, escaped = escaped or letter != '"', not escaped and letter == "\\"
        elif letter == '"':
            inside = True
        elif letter in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in "}]":
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadJSON("has a key twice")
    return found


def _refuse(name: str) -> NoReturn:
    raise BadJSON(f"has {name}, which is no number")
