"""The facts of a rollout as text: what an environment measured, what a critic wrote, where a tree branched."""

from typing import Any, Final

from posttrain.errors.foreign import parse_json
from posttrain.runs.readings import number

ELSEWHERE: Final = ("requests",)
"""Entries that are shown with the turns (`posttrain.viewer.branches`), hidden at first."""


def facts(info: str | None) -> list[dict[str, str]]:
    """Entries of the column ``info``, each with ``name`` and ``text``; the column as it is where it is no object."""
    if not info:
        return []
    try:
        entries = parse_json(info, constants=True)
    except ValueError:
        return [{"name": "", "text": info}]
    if not isinstance(entries, dict):
        return [{"name": "", "text": as_text(entries)}]
    return [
        {"name": str(name).replace("_", " "), "text": as_text(value)}
        for name, value in entries.items()
        if name not in ELSEWHERE
    ]


def as_text(value: Any, level: int = 0) -> str:
    """A value of JSON without its signs: lines for what is in it, numbers as elsewhere, texts as they are."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return _lines([(str(name).replace("_", " "), own) for name, own in value.items()], level)
    if isinstance(value, list):
        if all(not isinstance(own, dict | list) and "\n" not in str(own) for own in value):
            return ", ".join(as_text(own) for own in value) or "none"
        return _lines([(str(place), own) for place, own in enumerate(value, 1)], level)
    return str(value)


def _lines(entries: list[tuple[str, Any]], level: int) -> str:
    lines = []
    for name, value in entries:
        text = as_text(value, level + 1)
        inside = "\n" in text or isinstance(value, dict)
        lines.append(f"{'  ' * level}{name}:{chr(10) if inside else ' '}{text}")
    return "\n".join(lines) or "none"
