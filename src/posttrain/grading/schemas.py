"""References in JSON schemas of tools: none is fetched, so that one to elsewhere or to itself is an error of data."""

from collections.abc import Mapping
from typing import Any, Final

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
MOST: Final = 100_000
"""Values of a schema that are read."""


def tools_fault(tools: Any) -> str:
    """What is wrong with the references of the schemas of tools; empty where nothing is."""
    for number, tool in enumerate(tools if isinstance(tools, list | tuple) else ()):
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        schema = inner.get("parameters") if isinstance(inner, Mapping) else None
        if fault := schema_fault(schema):
            return f"tool {number + 1}: {fault}"
    return ""


def schema_fault(schema: Any) -> str:
    """The same of one schema."""
    left, seen = [schema], 0
    while left and seen < MOST:
        value = left.pop()
        seen += 1
        if isinstance(value, Mapping):
            for name in REFERENCES:
                if isinstance(value.get(name), str) and (fault := _fault(value[name], schema, name)):
                    return fault
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value
    return "its schema is too large" if left else ""


def _fault(target: str, schema: Any, name: str) -> str:
    """What is wrong with a reference."""
    passed: list[str] = []
    while True:
        if not target.startswith("#"):
            return f"{name} {target[:80]!r} is remote; nothing is fetched, so write the schema in its place"
        if target in passed:
            return f"{name} {target[:80]!r} refers to itself"
        passed.append(target)
        place = schema
        for part in target.lstrip("#").strip("/").split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if not part:
                continue
            if not isinstance(place, Mapping) or key not in place:
                return f"{name} {target[:80]!r} refers to nothing in the schema"
            place = place[key]
        further = place.get(name) if isinstance(place, Mapping) else None
        if not isinstance(further, str):
            return ""
        target = further
