"""The sampler of a role whose model is an endpoint: it only writes text."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from posttrain.engines import Sampling
from posttrain.engines._random import key_of, uniform
from posttrain.errors import NoAnswer, UserError
from posttrain.serving.client import Remote
from posttrain.serving.likeliest import of_labels
from posttrain.types import Completion, FloatArray, IntArray, Message, Segment, Task


class RemoteSampler:
    """A `posttrain.engines.Sampler` of which only `write`, `label_logp`, `bind` and `uniform` work."""

    def __init__(self, remote: Remote, *key: int | str) -> None:
        """The seed of the n-th completion is a function of (the run's seed, key, n)."""
        self._remote = remote
        self._key = (remote.seed, *key)
        self._requested = 0
        self._drawn = 0

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        """Texts of `n` completions. Raises `NoAnswer`, or `AlarmStop` where the endpoint is down."""
        return await self.write_value(prompt, n, sampling, None)

    async def write_value(
        self, prompt: str | Sequence[Message], n: int, sampling: Sampling, schema: Mapping[str, Any] | None
    ) -> list[str]:
        """The same, each a JSON value of a schema (``response_format``)."""
        numbers = range(self._requested, self._requested + n)
        self._requested += n
        seeds = [key_of(*self._key, number) % 2**31 for number in numbers]
        return list(await asyncio.gather(*(self._remote.write(prompt, sampling, seed, schema) for seed in seeds)))

    async def label_logp(self, prompt: str | Sequence[Message], labels: Sequence[str]) -> list[float]:
        """[K] log-probability that the first token after a prompt is each label. Raises `NoAnswer`, and `UserError`
        for an endpoint that states no log-probabilities.
        """
        found = await self._remote.likeliest(prompt)
        logp = of_labels(found, labels)
        if logp is None:
            tokens = ", ".join(repr(token) for token, _ in found[:5]) or "none"
            raise NoAnswer(
                f"none of {', '.join(map(repr, labels))} is among the {len(found)} likeliest first tokens of role "
                f"'{self._remote.role}' ({tokens}, ...): a label is one token, and the prompt must request it alone"
            )
        return logp

    def uniform(self) -> float:
        """The next draw from [0, 1)."""
        key_B, counter_B = np.array([key_of(*self._key, "uniform")], np.uint64), np.array([self._drawn], np.uint64)
        self._drawn += 1
        return float(uniform(key_B, counter_B)[0])

    @property
    def context(self) -> int:
        """Not available."""
        return self._refuse("the length of its context")

    def bind(self, *key: int | str) -> "RemoteSampler":
        """A sampler with another key."""
        return RemoteSampler(self._remote, *self._key[1:], *key)

    def prompt(self, task: Task) -> Segment:
        """Not available."""
        return self._refuse("token ids")

    def encode(self, prompt: str | Sequence[Message]) -> IntArray:
        """Not available."""
        return self._refuse("token ids")

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> IntArray:
        """Not available."""
        return self._refuse("token ids")

    def encode_reply(self, prompt: str | Sequence[Message], turn: IntArray, reply: Message) -> IntArray:
        """Not available."""
        return self._refuse("token ids")

    def decode(self, token_ids: IntArray) -> str:
        """Not available."""
        return self._refuse("token ids")

    async def sample(
        self, token_ids: IntArray, n: int, sampling: Sampling, vectors: FloatArray | None = None
    ) -> list[Completion]:
        """Not available."""
        return self._refuse("token ids")

    async def logp(
        self, token_ids: IntArray, *, temperature: float = 1.0, vectors: FloatArray | None = None
    ) -> FloatArray:
        """Not available."""
        return self._refuse("log-probabilities")

    async def score(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> float:
        """Not available."""
        return self._refuse("the output of a reward head")

    async def scores(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> FloatArray:
        """Not available."""
        return self._refuse("the output of a reward head")

    def _refuse(self, what: str) -> NoReturn:
        role = self._remote.role
        raise UserError(
            f"{what} of role '{role}' is required, but its model is an endpoint ({self._remote.url}), which returns "
            f"text only; name a model that is loaded here as models.{role}.source, or use the endpoint for a part that "
            "needs only text (the reward 'judge', critiques)"
        )
