"""Completions that are put together from given pieces: after each text, a function gives the pieces that may follow.

A token is allowed where all its bytes go on with a piece, or with several pieces, whatever their borders; an end token
where the function gives `END`. A trie of whole texts is the function that gives them all at first, and then `END`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from posttrain.engines import Matcher, TokenSampler
from posttrain.errors import UserError
from posttrain.types import IntArray

END: Final = ""
"""Among pieces: the completion may end here."""
Next = Callable[[str], Sequence[str]]
"""The pieces that may follow a text of whole pieces."""
State = frozenset[tuple[str, bytes]]
"""Where a completion may be: whole pieces, and the bytes of the next one."""
START: Final[State] = frozenset({("", b"")})


def one_of(texts: Sequence[str]) -> Next:
    """A trie: the completion is one of the texts."""
    return lambda text: [END] if text else [*texts]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of one tokenizer."""

    token_bytes: Sequence[bytes]
    """By token id; empty for those that are no text."""
    by_first: Mapping[int, Sequence[int]]
    """Ids by the first byte."""
    ends: frozenset[int]
    """Tokens that end a completion."""

    @classmethod
    def of(cls, sampler: TokenSampler) -> "Vocabulary":
        """That of a sampler; the last ones are kept."""
        content, ends, size = sampler.tokenizer_file()
        key = (hash(content), ends, size)
        if key not in _KEPT:
            made = cls.from_bytes([b"" if i in ends else sampler.token_bytes(i) for i in range(size)], ends)
            while len(_KEPT) >= _MOST:
                _KEPT.pop(next(iter(_KEPT)))
            _KEPT[key] = made
        return _KEPT[key]

    @classmethod
    def from_bytes(cls, token_bytes: Sequence[bytes], ends: frozenset[int]) -> "Vocabulary":
        """That of tokens by id."""
        by_first: dict[int, list[int]] = {}
        for i, own in enumerate(token_bytes):
            if own:
                by_first.setdefault(own[0], []).append(i)
        return cls(token_bytes, by_first, ends)

    def text(self, token_ids: IntArray) -> str:
        """The text of tokens, without those that end a completion."""
        return b"".join(self.token_bytes[i] for i in token_ids.tolist()).decode(errors="replace")


_KEPT: dict[object, Vocabulary] = {}
_MOST: Final = 8


@dataclass(slots=True)
class Pieces:
    """What may be written, for one tokenizer."""

    follow: Next
    vocabulary: Vocabulary
    _masks: dict[State, NDArray[np.bool_]] = field(default_factory=dict)
    _next: dict[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, follow: Next, sampler: TokenSampler) -> "Pieces":
        """For a sampler's tokenizer."""
        return cls(follow, Vocabulary.of(sampler))

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a completion."""
        return self.vocabulary.ends

    def after(self, text: str) -> Sequence[str]:
        """The pieces that may follow."""
        if text not in self._next:
            self._next[text] = tuple(self.follow(text))
        return self._next[text]

    def step(self, state: State, byte: int) -> State:
        """After one more byte; empty where it does not go on."""
        found = set[tuple[str, bytes]]()
        for text, begun in state:
            longer = begun + bytes([byte])
            for piece in self.after(text):
                whole = piece.encode()
                if whole == longer:
                    found.add((text + piece, b""))
                elif whole.startswith(longer):
                    found.add((text, longer))
        return frozenset(found)

    def pushed(self, state: State, token_id: int) -> State:
        """After one more token."""
        for byte in self.vocabulary.token_bytes[token_id]:
            state = self.step(state, byte)
            if not state:
                break
        return state

    def allowed(self, state: State) -> NDArray[np.bool_]:
        """Bool [V] tokens that may come next. Raises `UserError` where there is none."""
        if state not in self._masks:
            begun_with = [(p.encode(), begun) for text, begun in state for p in self.after(text)]
            first = {p[len(begun)] for p, begun in begun_with if len(p) > len(begun) and p.startswith(begun)}
            mask_V = np.zeros(len(self.vocabulary.token_bytes), bool)
            begins = (i for byte in first for i in self.vocabulary.by_first.get(byte, ()))
            mask_V[[i for i in begins if self.pushed(state, i)]] = True
            mask_V[list(self.ends)] = any(not begun and END in self.after(text) for text, begun in state)
            if not mask_V.any():
                texts = sorted(text for text, _ in state)
                raise UserError(f"no token may follow {texts[0][-60:]!r}; let its pieces have one more, or the end")
            self._masks[state] = mask_V
        return self._masks[state]

    def matcher(self) -> Matcher:
        """For one completion."""
        return _PiecesMatcher(self)

    def allowed_of(self, token_ids: IntArray) -> IntArray:
        """What was allowed at each token of a completion, as `Segment.allowed`."""
        return allowed_of(self.matcher(), self.ends, token_ids)


def allowed_of(matcher: Matcher, ends: frozenset[int], token_ids: IntArray) -> IntArray:
    """What a matcher allows at each token of a completion, as `Segment.allowed`; none after one that was not."""
    own, alive = list[IntArray](), True
    for token_id in token_ids.tolist():
        allowed_V = matcher.allowed() if alive else np.zeros(0, bool)
        own.append(np.flatnonzero(allowed_V).astype(np.int64))
        alive = alive and token_id not in ends and bool(allowed_V[token_id])
        if alive:
            matcher.push(token_id)
    return np.concatenate([np.array([len(ids) for ids in own], np.int64), *own])


class _PiecesMatcher:
    """See `posttrain.engines.Matcher`."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, self._state = pieces, START

    def allowed(self) -> NDArray[np.bool_]:
        """Bool [V]."""
        return self._pieces.allowed(self._state)

    def push(self, token_id: int) -> None:
        """Go on after a token."""
        if token_id not in self._pieces.ends:
            self._state = self._pieces.pushed(self._state, token_id)
