"""Completions of a fixed form: given texts, free texts between them, and one of several texts.

    form = (Fixed('{"why": "'), Free(most=80), Fixed('", "score": '), OneOf(("1", "2", "10")), Fixed("}"))

A form is followed byte by byte: a token is allowed where all its bytes go on with the form, and an end token where the
form is complete. A free text has no quotation mark, backslash or control character, so that the text after it, which
begins with one, ends it. No library is needed, unlike for a whole JSON schema (`posttrain.serving.structured`).

A mask gives a form to any model, and so hides one that would not have written it; `own_share` measures that.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from posttrain.engines import Matcher, TokenSampler
from posttrain.types import FloatArray, IntArray

STOPS: Final = frozenset(b'"\\') | frozenset(range(32)) | {127}
"""Bytes that a free text does not have."""
State = frozenset[tuple[int, bytes]]
"""Where a completion may be: the number of a part, and what it has of it; for a free text, a byte for each byte."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A given text."""

    text: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several texts."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Free:
    """A text of the model's own."""

    most: int
    """Most bytes."""


Part = Fixed | OneOf | Free


@dataclass(slots=True)
class Form:
    """The parts of a completion, for one tokenizer."""

    parts: Sequence[Part]
    token_bytes: Sequence[bytes]
    """By token id; empty for those that are no text."""
    ends: frozenset[int]
    """Tokens that end a completion."""
    _masks: dict[State, NDArray[np.bool_]] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: tuple[Part, ...], sampler: TokenSampler) -> "Form":
        """The form for a sampler's tokenizer; the last ones are kept with their masks."""
        content, ends, size = sampler.tokenizer_file()
        key = (hash(content), ends, size, parts)
        if key not in _KEPT:
            made = cls(parts, [b"" if i in ends else sampler.token_bytes(i) for i in range(size)], ends)
            while len(_KEPT) >= KEPT:
                _KEPT.pop(next(iter(_KEPT)))
            _KEPT[key] = made
        return _KEPT[key]

    @property
    def start(self) -> State:
        """Before the first token."""
        return self._opened({(0, b"")})

    def _opened(self, state: set[tuple[int, bytes]]) -> State:
        """With the parts that may begin where others may end."""
        found, left = set(state), list(state)
        while left:
            number, done = left.pop()
            if number < len(self.parts) and self._complete(number, done) and (number + 1, b"") not in found:
                found.add((number + 1, b""))
                left.append((number + 1, b""))
        return frozenset(found)

    def _complete(self, number: int, done: bytes) -> bool:
        part = self.parts[number]
        if isinstance(part, Free):
            return True
        texts = (part.text,) if isinstance(part, Fixed) else part.texts
        return any(done == text.encode() for text in texts)

    def step(self, state: State, byte: int) -> State:
        """After one more byte; empty where it does not go on."""
        found = set[tuple[int, bytes]]()
        for number, done in state:
            if number == len(self.parts):
                continue
            part = self.parts[number]
            if isinstance(part, Free):
                if len(done) < part.most and byte not in STOPS:
                    found.add((number, done + b"."))
                continue
            longer = done + bytes([byte])
            texts = (part.text,) if isinstance(part, Fixed) else part.texts
            if any(text.encode().startswith(longer) for text in texts):
                found.add((number, longer))
        return self._opened(found)

    def pushed(self, state: State, token_id: int) -> State:
        """After one more token."""
        for byte in self.token_bytes[token_id]:
            state = self.step(state, byte)
            if not state:
                break
        return state

    def whole(self, state: State) -> bool:
        """Whether the completion may end here."""
        return any(number == len(self.parts) for number, _ in state)

    def allowed(self, state: State) -> NDArray[np.bool_]:
        """Bool [V] tokens that may come next."""
        if state not in self._masks:
            mask_V = np.array([bool(own) and bool(self.pushed(state, i)) for i, own in enumerate(self.token_bytes)])
            mask_V[list(self.ends)] = self.whole(state)
            self._masks[state] = mask_V
        return self._masks[state]

    def matcher(self) -> Matcher:
        """For one completion."""
        return _FormMatcher(self)

    def own_share(self, token_ids: IntArray, logp: FloatArray) -> float:
        """The probability that the model goes on with the form where it has a fixed text, without a mask.

        It is the product over the tokens at whose place fewer than half of the vocabulary was allowed.
        """
        state, total = self.start, 0.0
        for token_id, own in zip(token_ids.tolist(), logp.tolist(), strict=True):
            if 2 * int(self.allowed(state).sum()) < len(self.token_bytes):
                total += own
            if token_id in self.ends:
                break
            state = self.pushed(state, token_id)
        return float(np.exp(total))


class _FormMatcher:
    """See `posttrain.engines.Matcher`."""

    def __init__(self, form: Form) -> None:
        self._form, self._state = form, form.start

    def allowed(self) -> NDArray[np.bool_]:
        """Bool [V]."""
        return self._form.allowed(self._state)

    def push(self, token_id: int) -> None:
        """Go on after a token."""
        if token_id not in self._form.ends:
            self._state = self._form.pushed(self._state, token_id)


KEPT: Final = 8
"""Forms that are kept."""
_KEPT: dict[Hashable, Form] = {}
