"""Records in texts: a value for each of several fields, as a JSON object or as lines ``name: value``."""

import json
import re
from collections.abc import Sequence
from typing import Any

_LINE = re.compile(r"^[ \t]*([A-Za-z_][\w ]{0,63}?)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def read_record(text: str) -> dict[str, str] | None:
    """The fields of a text, by their names in lower case; None for one without a record. A repeated field has its first
    value; values are stripped, numbers and truth values written as JSON writes them.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        try:
            found: Any = json.loads(stripped)
        except (ValueError, RecursionError):
            return None
        return {str(name).lower(): _text(value) for name, value in found.items()} if isinstance(found, dict) else None
    record: dict[str, str] = {}
    for match in _LINE.finditer(text):
        record.setdefault(match[1].lower(), match[2])
    return record or None


def first_difference(text: str, reference: str, fields: Sequence[str]) -> str | None:
    """What is wrong with a text beside a reference record, None for nothing: ``unreadable``, ``no FIELD`` (absent or
    empty), or ``FIELD``, the first of the fields that differs, in this order. Other fields are not compared.
    """
    ours, theirs = read_record(text), read_record(reference)
    assert theirs is not None, "references are checked first"
    if ours is None:
        return "unreadable"
    for name in fields:
        if not ours.get(name.lower(), ""):
            return f"no {name}"
    return next((name for name in fields if ours[name.lower()] != theirs[name.lower()]), None)


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else "" if value is None else json.dumps(value)
