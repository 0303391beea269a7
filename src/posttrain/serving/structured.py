"""Completions that follow a JSON schema (``response_format``), and replies that must call a tool (``tool_choice``), by
masks of tokens from the library llguidance.

A schema is a stranger's program. What it may be is limited here (its size, its depth), what it may cost by the library
(`posttrain.engines._schemas`), and what the library does not hold is refused with its own words, never relaxed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from posttrain.engines import Matcher, TokenSampler
from posttrain.engines._schemas import JSON_FORM, Schemas, json_grammar
from posttrain.errors import UserError
from posttrain.serving.fields import Refused, Tool, shape_of
from posttrain.serving.tools import grammar_of

MOST_BYTES = 32_768
"""Of a schema as JSON."""
MOST_VALUES = 1_000
"""Of a schema: lists, objects, and what is in them. Compilation takes time by their square: 0.1 s for this many."""
MOST_DEPTH = 24
FORMAT, TOOLS = "response_format", "tools"
"""The fields of requests that schemas come from."""


class Structured:
    """Makes matchers for schemas and calls. Used from one thread at a time."""

    def __init__(self) -> None:
        self._schemas = Schemas()

    def compile(self, schema: Mapping[str, Any], sampler: TokenSampler) -> Callable[[], Matcher]:
        """A function that makes the matcher of a completion that is a value of the schema. Raises `Refused`."""
        check_schema(schema, FORMAT)
        return self._matchers(lambda: json_grammar(schema), sampler, FORMAT, "follow a response_format")

    def compile_calls(
        self, tools: Sequence[Tool], sampler: TokenSampler, *, marked: bool, several: bool
    ) -> Callable[[], Matcher]:
        """A function that makes the matcher of a reply that calls one of the tools. Raises `Refused`."""
        schemas = {tool.function.name: arguments_schema(tool) for tool in tools}
        check_schema(schemas, TOOLS)

        def grammar() -> str:
            from llguidance import LLMatcher

            forms = {name: {**schema, "x-guidance": JSON_FORM} for name, schema in schemas.items()}
            return LLMatcher.grammar_from_lark(grammar_of(forms, marked=marked, several=several))

        return self._matchers(grammar, sampler, TOOLS, "force a call of a tool (tool_choice)")

    def _matchers(
        self, grammar: Callable[[], str], sampler: TokenSampler, param: str, what: str
    ) -> Callable[[], Matcher]:
        try:
            return self._schemas.matchers(grammar, sampler, f"this server cannot {what}")
        except UserError as error:
            raise Refused(str(error), param=param) from None


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments; without parameters it has none. Raises `Refused` for what is no object."""
    given = tool.function.parameters
    if given is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if given.get("type", "object") != "object":
        raise Refused(
            f"the parameters of the tool '{tool.function.name}' are of the type {given['type']!r:.60}; arguments of a "
            "call are an object",
            param=TOOLS,
        )
    return {**given, "type": "object"}


def check_schema(schema: Mapping[str, Any], param: str) -> None:
    """Raises `Refused` for a schema that is too large, too deep, or refers to another place."""
    values, depth = shape_of(schema)
    if depth > MOST_DEPTH or values > MOST_VALUES or len(json.dumps(schema)) > MOST_BYTES:
        raise Refused(
            f"the schema has {values} values, {depth} deep; at most {MOST_VALUES} are allowed, {MOST_DEPTH} deep and "
            f"{MOST_BYTES} bytes as JSON",
            param=param,
        )
    for reference in _references(schema):
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Refused(
                f"the schema refers to {reference!r:.60}; references are to places in the schema, such as "
                "'#/$defs/name', since nothing is fetched",
                param=param,
            )


def _references(given: Any) -> Iterator[Any]:
    if isinstance(given, dict):
        for name, value in given.items():
            if name in ("$ref", "$dynamicRef", "$recursiveRef") and not isinstance(value, dict):
                yield value
            yield from _references(value)
    elif isinstance(given, list):
        for value in given:
            yield from _references(value)
