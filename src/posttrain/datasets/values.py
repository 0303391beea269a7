"""Values of rows: as JSON, and as the text of an answer."""

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from sys import getsizeof
from typing import Any
from uuid import UUID


def plain(value: Any) -> Any:
    """A value as JSON: dates, decimals, fractions, bytes and numpy values become text, numbers and lists.

    Tuples and integer keys are kept, since JSON can write them and some graders compare them. NaN, which marks a
    missing value in data frames, becomes None. Raises `TypeError` for other values.
    """
    kind = type(value)
    if value is None or kind in (str, int, bool):
        return value
    if kind is list:  # by type first: a row may have a million
        return [plain(item) for item in value]
    if isinstance(value, float):
        return _finite(float(value))
    if isinstance(value, Mapping):
        return {key if isinstance(key, int) else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(plain, value)) if kind is tuple else [*map(plain, value)]
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=repr)
    return _scalar(value)


def finite(value: Any) -> float | None:
    """The number of a field, which may be a text as in delimited files; None for anything else, and if not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def memory(value: Any) -> int:
    """Bytes that a plain value takes in memory."""
    size = getsizeof(value)
    if type(value) in (list, tuple):
        return size + sum(map(memory, value)) if value else size
    if isinstance(value, dict):
        return size + sum(getsizeof(key) + memory(item) for key, item in value.items())
    return size


def _finite(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else repr(value)


def _scalar(value: Any) -> Any:
    """A scalar of data frames or databases that JSON lacks."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else _finite(float(value))
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, UUID):
        return str(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    raise TypeError(type(value).__name__)


def as_text(value: Any) -> str:
    """Text of an answer: text as is, numbers as Python writes them (without a trailing .0), the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value).removesuffix(".0")
    return json.dumps(value, ensure_ascii=False)


def shorten(text: str, width: int = 90) -> str:
    """One line of at most `width` characters, quoted, for messages and reports."""
    line = repr(text)
    return line if len(line) <= width else f"{line[: width - 4]}...{line[-1]}"
