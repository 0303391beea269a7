"""What the engine writes, on its way to a client: from thread to thread, and from tokens to text."""

import asyncio
import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from posttrain.engines import Written
from posttrain.serving.tools import held_back
from posttrain.types import Completion

REPLACEMENT = "\ufffd"
UNSETTLED = 3
"""Characters at the end that further tokens may change: as many bytes of a character can be there without its last."""
WINDOW = 12
"""Tokens that are decoded again with new ones: more than a character can span."""


@dataclass(frozen=True, slots=True)
class Token:
    """A sampled token, with the likeliest ones at its place where they are wanted, likeliest first."""

    token_id: int
    logp: float
    likeliest: Sequence[tuple[int, float]] | None = None


Taken = tuple[int, list[Token], Completion | None]
"""A completion's number, its new tokens, and the whole where these are its last."""


@dataclass(slots=True)
class _Held:
    """Tokens of a completion, in few bytes each."""

    ids: "array[int]" = field(default_factory=lambda: array("q"))
    logp: "array[float]" = field(default_factory=lambda: array("f"))
    likeliest_ids: "array[int]" = field(default_factory=lambda: array("q"))
    likeliest_logp: "array[float]" = field(default_factory=lambda: array("f"))
    taken: int = 0
    completion: Completion | None = None
    over: bool = False


class Feed:
    """The tokens of a request's completions, put in by the engine's thread and taken out by another."""

    def __init__(self, completions: int, likeliest: int, news: asyncio.Event | None = None) -> None:
        """`news` is set, in its event loop, when there is something to take; None where nobody waits."""
        self._likeliest = likeliest
        self._held = [_Held() for _ in range(completions)]
        self._lock = threading.Lock()
        self._news = news
        self._loop = asyncio.get_running_loop()
        self._notified = False
        self.begun = False
        """Whether anything was put in."""

    def put(self, several: Sequence[Written]) -> None:
        """Take over what a step wrote."""
        with self._lock:
            self.begun = True
            for written in several:
                held = self._held[written.number]
                held.ids.extend(written.token_ids.tolist())
                held.logp.extend(written.logp.tolist())
                if written.likeliest_ids is not None and written.likeliest_logp is not None:
                    held.likeliest_ids.extend(written.likeliest_ids.ravel().tolist())
                    held.likeliest_logp.extend(written.likeliest_logp.ravel().tolist())
                held.completion = written.completion
            first, self._notified = not self._notified, True
        if first and self._news is not None:
            self._loop.call_soon_threadsafe(self._news.set)

    def take(self) -> list[Taken]:
        """By number, the new tokens of completions, and those that are whole now."""
        found: list[Taken] = []
        with self._lock:
            self._notified = False
            for number, held in enumerate(self._held):
                tokens = [self._token(held, place) for place in range(held.taken, len(held.ids))]
                ended = held.completion if held.completion is not None and not held.over else None
                held.taken, held.over = len(held.ids), held.completion is not None
                if tokens or ended is not None:
                    found.append((number, tokens, ended))
        return found

    def _token(self, held: _Held, place: int) -> Token:
        if not len(held.likeliest_ids):
            return Token(held.ids[place], held.logp[place])
        each = len(held.likeliest_ids) // len(held.ids)
        part = slice(place * each, (place + 1) * each)
        pairs = zip(held.likeliest_ids[part], held.likeliest_logp[part], strict=True)
        return Token(held.ids[place], held.logp[place], list(pairs))


class TextStream:
    """The text of a completion, token by token: whole characters, and nothing that a stop string may take back."""

    def __init__(self, decode: Callable[[np.ndarray], str], stops: Sequence[str]) -> None:
        self._decode = decode
        self._stops = stops
        self._window: list[int] = []
        self._taken = 0  # characters of the window's text that are settled
        self._waiting = ""  # settled, but perhaps the first part of a stop string
        self._given = 0

    def push(self, token_id: int) -> str:
        """The text that is settled with one more token."""
        self._window.append(token_id)
        text = self._decode(np.array(self._window))
        unsettled = min(len(text) - len(text.rstrip(REPLACEMENT)), UNSETTLED)
        end = max(self._taken, len(text) - unsettled)
        self._waiting += text[self._taken : end]
        self._taken = end
        if len(self._window) >= 2 * WINDOW and not unsettled:
            self._window = self._window[-WINDOW:]
            self._taken = len(self._decode(np.array(self._window)))
        if any(stop in self._waiting for stop in self._stops):
            return ""  # the engine ends it here
        kept = held_back(self._waiting, self._stops) if self._stops else 0
        settled, self._waiting = self._waiting[: len(self._waiting) - kept], self._waiting[len(self._waiting) - kept :]
        self._given += len(settled)
        return settled

    def rest(self, whole: str) -> str:
        """What is left of the completion's text."""
        return whole[self._given :]
