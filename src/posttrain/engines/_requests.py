"""Requests to the decoding batch, and the room that they take in its cache."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from posttrain import kernels
from posttrain.engines import Caching, Sampling, Watch
from posttrain.engines._passes import Piece
from posttrain.types import Array, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt and how it is to be completed."""

    prompt: Piece
    sampling: Sampling
    max_tokens: int
    """The limit of the sampling settings, or the rest of the context if that is less."""
    stop_token_ids: IntArray
    """The model's end tokens and those of the sampling settings."""
    watch: Watch = field(default_factory=Watch)
    caching: Caching | None = None
    """Whether keys and values go with the completion, and which come with the prompt."""

    @property
    def stored(self) -> Sequence[Array] | None:
        """Keys and values of all tokens of the prompt but the last."""
        return None if self.caching is None else self.caching.stored


@dataclass(slots=True)
class Room:
    """The room that is left; a few sequences find room in any case."""

    tokens: float
    few: int

    def take(self, request: Request, wanted: int, *, begun: bool) -> int:
        """Take the room of as many of a request's completions as fit; `begun` where its prompt is there already."""
        prompt = 0 if begun else len(request.prompt)
        if self.tokens != math.inf:
            wanted = min(wanted, max(int(self.tokens - prompt) // tokens_of(request), self.few))
        if wanted > 0:
            self.tokens -= prompt + wanted * tokens_of(request)
            self.few -= wanted
        return max(wanted, 0)


def tokens_of(request: Request) -> int:
    """Tokens that a completion takes in the cache at most, in pages of its own."""
    return request.max_tokens + kernels.PAGE
