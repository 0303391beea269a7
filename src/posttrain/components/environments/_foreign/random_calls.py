"""Random tool calls, for environments whose actions are calls rather than a list to choose from."""

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from posttrain.grading.turn_calls import CallForm, written_call

DEPTH: Final = 3
"""Nested objects and arrays that are filled; deeper ones are empty."""


def random_call(tools: Sequence[Mapping[str, Any]], form: CallForm, seen: str, random: Random) -> str:
    """A call of one of the tools, with arguments of the types in its JSON schema.

    A text is a word of what was `seen`, since names of things stand there.
    """
    schema = random.choice(tools)
    parameters = schema.get("parameters") or {}
    words = re.findall(r"\w+", seen) or ["x"]
    arguments = _Values(parameters.get("$defs", {}), words, random).object(parameters, DEPTH)
    return written_call(str(schema["name"]), arguments, form)


class _Values:
    """Values of JSON schemas."""

    def __init__(self, shared: Mapping[str, Any], words: Sequence[str], random: Random) -> None:
        self._shared, self._words, self._random = shared, words, random

    def object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """The required fields, and each of the others in half of the cases."""
        required = schema.get("required", ())
        return {
            name: self._value(own, depth)
            for name, own in (schema.get("properties") or {}).items()
            if name in required or self._random.random() < 0.5
        }

    def _value(self, schema: Mapping[str, Any], depth: int) -> Any:
        if "$ref" in schema:
            schema = self._shared.get(str(schema["$ref"]).rsplit("/", 1)[-1], {})
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._random.choice(schema["enum"])
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self._value(self._random.choice(options), depth)
        kind = schema.get("type", "string")
        if isinstance(kind, list):
            kind = self._random.choice(kind)
        if kind == "integer":
            low = int(schema.get("minimum", 0))
            return self._random.randint(low, max(low, int(schema.get("maximum", low + 9))))
        if kind == "number":
            least = float(schema.get("minimum", 0.0))
            return round(self._random.uniform(least, max(least, float(schema.get("maximum", least + 10.0)))), 2)
        if kind == "boolean":
            return self._random.random() < 0.5
        if kind == "null":
            return None
        if kind == "array":
            items = schema.get("items") or {}
            return [self._value(items, depth - 1) for _ in range(self._random.randint(0, 2) if depth else 0)]
        if kind == "object":
            return self.object(schema, depth - 1) if depth else {}
        return self._random.choice(self._words)
