"""Completions that are a value of a JSON schema, or of another grammar, by masks of tokens from the library llguidance.

What the library does not hold is refused with its own words, never relaxed.
"""

import json
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posttrain.engines import Matcher, TokenSampler
from posttrain.errors import UserError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

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


def json_grammar(schema: Mapping[str, Any]) -> str:
    """The grammar of the values of a schema."""
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(dict(schema), overrides=JSON_FORM)


class Schemas:
    """Makes matchers for one model. Used from one thread at a time."""

    def __init__(self) -> None:
        self._tokenizer: LLTokenizer | None = None
        self._size = 0

    def matchers(self, grammar: Callable[[], str], sampler: TokenSampler, otherwise: str) -> Callable[[], Matcher]:
        """A function that makes the matcher of a completion. Raises `UserError`, which begins with `otherwise` where
        the library is missing.
        """
        try:
            from llguidance import LLMatcher, LLParserLimits
        except ImportError:
            raise UserError(
                f"{otherwise}: its package llguidance is missing (pip install 'posttrain[structured]')"
            ) from None
        tokenizer = self._tokenizer or self._load(sampler)
        try:
            limits = LLParserLimits(**LIMITS, verbose_errors=False)  # type: ignore[arg-type]
            first = LLMatcher(tokenizer, grammar(), log_level=0, limits=limits)
        except (ValueError, RuntimeError) as error:
            raise _unheld(str(error)) from None
        if first.is_error():
            raise _unheld(first.get_error())
        if not first.compute_bitmask() or first.is_error():
            raise _unheld(first.get_error())
        lock = threading.Lock()

        def start() -> Matcher:
            with lock:
                return _SchemaMatcher(first.deep_copy(), self._size)

        return start

    def _load(self, sampler: TokenSampler) -> "LLTokenizer":
        """The model's tokenizer as the library reads it; checked token by token against the model's own."""
        from llguidance import LLTokenizer

        content, ends, size = sampler.tokenizer_file()
        if not ends:
            raise UserError("this model has no end token, so it cannot end a JSON text")
        try:
            tokenizer = LLTokenizer(content, n_vocab=size, eos_token=sorted(ends))
        except Exception as error:
            raise UserError(f"the tokenizer of this model cannot be used with a schema: {error}") from None
        known = max(json.loads(content)["model"]["vocab"].values())
        for token in range(min(size, known + 1)):
            if tokenizer.is_special_token(token):
                continue
            theirs, ours = tokenizer.decode_bytes([token]), sampler.token_bytes(token)
            if theirs != ours and theirs.strip() != ours.strip():  # alone, some tokenizers drop a leading space
                raise UserError(
                    f"the tokenizer of this model cannot be used with a schema: token {token} is {ours!r}, which "
                    f"llguidance reads as {theirs!r}",
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


def _unheld(reason: str) -> UserError:
    return UserError(f"this schema cannot be followed: {_short(reason)}")


def _short(reason: str) -> str:
    """The first line of the library's message."""
    return reason.partition("\n")[0][:300].removesuffix("<non-verbose/>").strip()
