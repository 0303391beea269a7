"""The sampler of a role that an endpoint plays: it can write text, and nothing else."""

import asyncio
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from posttrain.engines import Sampling
from posttrain.engines._random import key_of, uniform
from posttrain.errors import UserError
from posttrain.serving.client import Remote
from posttrain.types import Completion, FloatArray, IntArray, Message, Segment, Task


class RemoteSampler:
    """A `posttrain.engines.Sampler` of which only `write`, `bind` and `uniform` work."""

    def __init__(self, remote: Remote, *key: int | str) -> None:
        """The n-th completion is asked for with a seed that is a function of (the run's seed, key, n)."""
        self._remote = remote
        self._key = (remote.seed, *key)
        self._asked = 0
        self._drawn = 0

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        """Texts of `n` completions. Raises `NoAnswer`, or `AlarmStop` where the endpoint is down."""
        numbers = range(self._asked, self._asked + n)
        self._asked += n
        seeds = [key_of(*self._key, number) % 2**31 for number in numbers]
        return list(await asyncio.gather(*(self._remote.write(prompt, sampling, seed) for seed in seeds)))

    def uniform(self) -> float:
        """A number in [0, 1), another one at each call."""
        key_B, counter_B = np.array([key_of(*self._key, "uniform")], np.uint64), np.array([self._drawn], np.uint64)
        self._drawn += 1
        return float(uniform(key_B, counter_B)[0])

    @property
    def context(self) -> int:
        """Not known."""
        return self._refuse("the length of its context")

    def bind(self, *key: int | str) -> "RemoteSampler":
        """A sampler of its own."""
        return RemoteSampler(self._remote, *self._key[1:], *key)

    def prompt(self, task: Task) -> Segment:
        """Not to be had."""
        return self._refuse("token ids")

    def encode(self, prompt: str | Sequence[Message]) -> IntArray:
        """Not to be had."""
        return self._refuse("token ids")

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> IntArray:
        """Not to be had."""
        return self._refuse("token ids")

    def encode_reply(self, prompt: str | Sequence[Message], turn: IntArray, reply: Message) -> IntArray:
        """Not to be had."""
        return self._refuse("token ids")

    def decode(self, token_ids: IntArray) -> str:
        """Not to be had."""
        return self._refuse("token ids")

    async def sample(
        self, token_ids: IntArray, n: int, sampling: Sampling, vectors: FloatArray | None = None
    ) -> list[Completion]:
        """Not to be had."""
        return self._refuse("token ids")

    async def logp(
        self, token_ids: IntArray, *, temperature: float = 1.0, vectors: FloatArray | None = None
    ) -> FloatArray:
        """Not to be had."""
        return self._refuse("log-probabilities")

    async def score(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> float:
        """Not to be had."""
        return self._refuse("the number of a reward head")

    def _refuse(self, what: str) -> NoReturn:
        role = self._remote.role
        raise UserError(
            f"{what} of role '{role}' were asked for, but its model is an endpoint ({self._remote.url}), which gives "
            f"text only; name a model that is loaded here as models.{role}.source, or use the endpoint for a part that "
            "asks for text (the reward 'judge', critiques)"
        )
