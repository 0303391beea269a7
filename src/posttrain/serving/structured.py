"""Completions that follow a JSON schema (``response_format``), and replies that must call a tool (``tool_choice``), by
masks of tokens from the library llguidance.

A schema is a stranger's program. What it may be is limited here (its size, its depth), what it may cost by the library
(`LIMITS`), and what the library does not hold is refused with its own words, never relaxed.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posttrain.engines import Matcher, TokenSampler
from posttrain.errors import UserError
from posttrain.serving.fields import Refused, Tool, shape_of
from posttrain.serving.tools import grammar_of

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MOST_BYTES = 32_768
"""Of a schema as JSON."""
MOST_VALUES = 1_000
"""Of a schema: lists, objects, and what is in them. Compilation takes time by their square: 0.1 s for this many."""
MOST_DEPTH = 24
LIMITS = {
    "max_items_in_row": 500,
    "initial_lexer_fuel": 200_000,
    "step_lexer_fuel": 50_000,
    "step_max_items": 10_000,
    "max_lexer_states": 20_000,
    "max_grammar_size": 50_000,
}
"""A quarter of the library's own or less: a mask takes milliseconds at most, as the model's step does."""
JSON_FORM: Any = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
"""At most a space after a comma or colon: small models fill a completion with white space where they may."""


FORMAT, TOOLS = "response_format", "tools"
"""The fields of requests that schemas come from."""


class Structured:
    """Makes matchers for schemas and calls. Used from one thread at a time."""

    def __init__(self) -> None:
        self._tokenizer: LLTokenizer | None = None
        self._size = 0

    def compile(self, schema: Mapping[str, Any], sampler: TokenSampler) -> Callable[[], Matcher]:
        """A function that makes the matcher of a completion that is a value of the schema. Raises `Refused`."""
        check_schema(schema, FORMAT)

        def grammar() -> str:
            from llguidance import LLMatcher

            return LLMatcher.grammar_from_json_schema(dict(schema), overrides=JSON_FORM)

        return self._matchers(grammar, sampler, FORMAT, "follow a response_format")

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
            from llguidance import LLMatcher, LLParserLimits
        except ImportError:
            raise Refused(
                f"this server cannot {what}: its package llguidance is missing (pip install 'posttrain[structured]')",
                param=param,
            ) from None
        tokenizer = self._tokenizer or self._load(sampler, param)
        try:
            limits = LLParserLimits(**LIMITS, verbose_errors=False)  # type: ignore[arg-type]
            first = LLMatcher(tokenizer, grammar(), log_level=0, limits=limits)
        except (ValueError, RuntimeError) as error:
            raise _unheld(str(error), param) from None
        if first.is_error():
            raise _unheld(first.get_error(), param)
        if not first.compute_bitmask() or first.is_error():
            raise _unheld(first.get_error(), param)
        lock = threading.Lock()

        def start() -> Matcher:
            with lock:
                return _SchemaMatcher(first.deep_copy(), self._size)

        return start

    def _load(self, sampler: TokenSampler, param: str) -> "LLTokenizer":
        """The model's tokenizer as the library reads it; checked token by token against the model's own."""
        from llguidance import LLTokenizer

        content, ends, size = sampler.tokenizer_file()
        if not ends:
            raise Refused("this model has no end token, so it cannot end a JSON text", param=param)
        try:
            tokenizer = LLTokenizer(content, n_vocab=size, eos_token=sorted(ends))
        except Exception as error:
            raise Refused(f"the tokenizer of this model cannot be used with a schema: {error}", param=param) from None
        known = max(json.loads(content)["model"]["vocab"].values())
        for token in range(min(size, known + 1)):
            if tokenizer.is_special_token(token):
                continue
            theirs, ours = tokenizer.decode_bytes([token]), sampler.token_bytes(token)
            if theirs != ours and theirs.strip() != ours.strip():  # alone, some tokenizers drop a leading space
                raise Refused(
                    f"the tokenizer of this model cannot be used with a schema: token {token} is {ours!r}, which "
                    f"llguidance reads as {theirs!r}",
                    param=param,
                )
        self._tokenizer, self._size = tokenizer, size
        return tokenizer


class _SchemaMatcher:
    """See `posttrain.engines.Matcher`."""

    def __init__(self, matcher: "LLMatcher", size: int) -> None:
        self._matcher, self._size = matcher, size

    def allowed(self) -> NDArray[np.bool_]:
        """Bool [V]."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed_V = np.zeros(self._size, bool)
        given = np.unpackbits(bits, bitorder="little")[: self._size].astype(bool)
        allowed_V[: len(given)] = given
        if self._matcher.is_error() or not allowed_V.any():
            reason = self._matcher.get_error() or "nothing can come next"
            raise UserError(f"the schema cannot be followed any further: {_short(reason)}; make it simpler")
        return allowed_V

    def push(self, token_id: int) -> None:
        """After a token that was allowed."""
        self._matcher.consume_token(token_id)


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


def _unheld(reason: str, param: str) -> Refused:
    return Refused(f"this schema cannot be followed: {_short(reason)}", param=param)


def _short(reason: str) -> str:
    """The first line of the library's message."""
    return reason.partition("\n")[0][:300].removesuffix("<non-verbose/>").strip()
