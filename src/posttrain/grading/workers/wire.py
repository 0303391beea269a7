"""Messages between processes: JSON with a length prefix, and plain Python values that JSON lacks.

A parsed message is data of the types below, whatever the other side sends. Nothing in it is ever run.
"""

import base64
import datetime
import json
import math
import struct
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

HEADER = struct.Struct(">Q")
LARGEST = 1 << 30
"""Most bytes of a message."""

_TAG = "\0type"
_AS_THEY_ARE = frozenset({type(None), bool, str, int, float})
_TEXTS: dict[str, tuple[type, Callable[[str], Any]]] = {
    "decimal": (Decimal, Decimal),
    "fraction": (Fraction, Fraction),
    "datetime": (datetime.datetime, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.fromisoformat),
    "uuid": (uuid.UUID, uuid.UUID),
}
"""Types that are defined by their text; a subclass comes before its base."""


def frame(value: Any) -> bytes:
    """A message. Raises `TypeError` for a value that cannot be sent."""
    content = json.dumps(_plain(value)).encode("ascii")
    if len(content) > LARGEST:
        raise TypeError(f"a message of {len(content)} bytes is too long; {LARGEST} are allowed")
    return HEADER.pack(len(content)) + content


def parse(content: bytes) -> Any:
    """The value of a message without its length."""
    return json.loads(content, object_hook=_rich)


def _plain(value: Any) -> Any:
    """A value as JSON; types that JSON lacks become an object with a tag."""
    if type(value) in _AS_THEY_ARE:
        return value
    if type(value) is dict and _TAG not in value and all(type(key) is str for key in value):
        return {key: item if type(item) in _AS_THEY_ARE else _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return str(value)
    if type(value) is list:
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key != _TAG for key in value):
            return {str(key): _plain(item) for key, item in value.items()}
        return _tagged("items", [[_plain(key), _plain(item)] for key, item in value.items()])
    if isinstance(value, tuple | list | set | frozenset):
        kind = "tuple" if isinstance(value, tuple) else "set" if isinstance(value, set | frozenset) else "list"
        return _tagged(kind, [_plain(item) for item in value])
    if isinstance(value, bytes | bytearray):
        return _tagged("bytes", base64.b64encode(value).decode("ascii"))
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        return _tagged("array", [value.dtype.str, list(value.shape), content, isinstance(value, np.generic)])
    if isinstance(value, datetime.timedelta):
        return _tagged("timedelta", [value.days, value.seconds, value.microseconds])
    if isinstance(value, int | float):  # for example an enumeration
        return value + 0
    for kind, (owner, _) in _TEXTS.items():
        if isinstance(value, owner):
            return _tagged(kind, value.isoformat() if hasattr(value, "isoformat") else str(value))
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__} cannot be sent to another process")


def _tagged(kind: str, content: Any) -> dict[str, Any]:
    return {_TAG: kind, "content": content}


def _rich(value: dict[str, Any]) -> Any:
    """The inverse of `_plain` for an object, whose content is rich already."""
    if _TAG not in value:
        return value
    kind, content = value[_TAG], value["content"]
    if kind in _TEXTS:
        return _TEXTS[kind][1](content)
    return _MAKERS[kind](content)


def _array(content: Any) -> Any:
    dtype, shape, data, scalar = content
    if np.dtype(dtype).kind not in "biufc":
        raise ValueError(f"an array of {dtype} is not sent")
    array = np.frombuffer(base64.b64decode(data), np.dtype(dtype))
    return array[0] if scalar else array.reshape(shape).copy()


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "items": dict,
    "tuple": tuple,
    "set": set,
    "list": list,
    "bytes": base64.b64decode,
    "timedelta": lambda parts: datetime.timedelta(*parts),
    "array": _array,
}


def number(value: Any, default: float = 0.0) -> float:
    """A finite number of a message, or the default."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else default
