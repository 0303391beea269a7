"""The server of the native engine: validates requests, keys their draws, and keeps the scheduler running."""

import asyncio
from collections.abc import Sequence

import numpy as np

from posttrain.engines import Counters, Sampling
from posttrain.engines._pump import Pump
from posttrain.engines._random import key_of, uniform
from posttrain.engines._slots import Order, Piece
from posttrain.errors import PosttrainError, UserError
from posttrain.policies import Policy
from posttrain.signals import LOGP, SCORE
from posttrain.types import Completion, FloatArray, IntArray, Message, Segment, Task


class ContinuousServer:
    """A policy that is ready to sample; see `posttrain.engines.Server`. Used from one event loop at a time."""

    def __init__(self, policy: Policy, seed: int, *, slots: int, prefill_tokens: int) -> None:
        self.policy = policy
        self.seed = seed
        self.counters = Counters()
        self._slots = slots
        self._prefill_tokens = prefill_tokens
        self._pump: Pump | None = None

    def bind(self, *key: int | str) -> "BoundSampler":
        """A sampler whose n-th completion is a function of (weights, prompt, settings, key, n) alone."""
        return BoundSampler(self, (self.seed, *key))

    async def complete(
        self, token_ids: IntArray, keys: list[int], sampling: Sampling, vectors: FloatArray | None = None
    ) -> list[Completion]:
        """Write a completion of the prompt for each key. Raises `UserError` before anything is sampled."""
        order = self._order(token_ids, vectors, sampling)
        return await self._running_pump().complete(order, keys) if keys else []

    async def logp(self, token_ids: IntArray, temperature: float, vectors: FloatArray | None = None) -> FloatArray:
        """[L-1] log-probability of each token after the first. Raises `UserError` for what cannot be judged."""
        sequence = self._piece(token_ids, vectors, reserved=0)
        if not temperature > 0:
            raise UserError(
                f"log-probabilities at temperature {temperature} are not defined; use a positive temperature "
                "(greedy completions record theirs at 1)"
            )
        if len(sequence) == 1:
            return np.zeros(0, np.float32)
        return await self._running_pump().score(sequence, LOGP, temperature)

    async def score(self, token_ids: IntArray, vectors: FloatArray | None = None) -> float:
        """What a reward head says of the whole sequence. Raises `UserError` for what cannot be judged."""
        (value,) = await self._running_pump().score(self._piece(token_ids, vectors, reserved=0), SCORE)
        return float(value)

    def _order(self, token_ids: IntArray, vectors: FloatArray | None, sampling: Sampling) -> Order:
        """What is to be written, with the limit and the stop tokens that hold for this model."""
        body = self.policy.body
        prompt = self._piece(token_ids, vectors, reserved=1)
        beyond = [i for i in sampling.stop_token_ids if i >= body.vocabulary_size]
        if beyond:
            raise UserError(
                f"stop_token_ids has {beyond[0]}, but the vocabulary of role {self.policy.role} has the ids 0 to "
                f"{body.vocabulary_size - 1}; leave it out"
            )
        ends = {i for i in self.policy.tokenizer.end_token_ids if i < body.vocabulary_size}
        return Order(
            prompt=prompt,
            sampling=sampling,
            max_tokens=min(sampling.max_tokens, body.context - len(prompt)),
            stop_token_ids=np.array(sorted(ends.union(sampling.stop_token_ids)), np.int64),
        )

    def _piece(self, token_ids: IntArray, vectors: FloatArray | None, reserved: int) -> Piece:
        """Tokens and vectors that the model can take; tokens beyond the vectors that are given have none."""
        ids = self._checked(token_ids, reserved)
        if vectors is None:
            return Piece(ids)
        width, role = self.policy.body.vector_width, self.policy.role
        if width is None:
            raise UserError(f"role {role} is a language model that takes text only, but this prompt has vectors")
        if vectors.ndim != 2 or vectors.shape[1] != width or len(vectors) > len(ids):
            raise UserError(
                f"role {role} takes a vector of {width} numbers for each of the {len(ids)} tokens, or for the first of "
                f"them, got an array of shape {vectors.shape}"
            )
        given = np.zeros((len(ids), width), np.float32)
        given[: len(vectors)] = vectors
        return Piece(ids, given)

    def _checked(self, token_ids: IntArray, reserved: int) -> IntArray:
        """A copy of ids that the model can take, with `reserved` tokens of its context left."""
        body, role = self.policy.body, self.policy.role
        ids = np.array(token_ids, np.int64)
        if ids.ndim != 1 or not len(ids):
            raise UserError(f"role {role} needs a list of at least one token id, got an array of shape {ids.shape}")
        if len(ids) > body.context - reserved:
            room = f", of which {reserved} must be left to write in" if reserved else ""
            raise UserError(
                f"{len(ids)} tokens are too many for role {role}: its context is {body.context} tokens{room}. Use at "
                f"most {body.context - reserved}: leave long tasks out, or set models.{role}.context higher if the "
                "model allows it."
            )
        if ids.min() < 0 or ids.max() >= body.vocabulary_size:
            wrong = int(ids[(ids < 0) | (ids >= body.vocabulary_size)][0])
            raise UserError(
                f"token id {wrong} is not in the vocabulary of role {role}, which has the ids 0 to "
                f"{body.vocabulary_size - 1}; encode text with the sampler's own encode"
            )
        return ids

    def _running_pump(self) -> Pump:
        """The pump of the running event loop."""
        pump, loop = self._pump, asyncio.get_running_loop()
        if pump and pump.loop is not loop and pump.busy and not pump.loop.is_closed():
            raise PosttrainError(
                f"role {self.policy.role} is being sampled from another event loop: await what was asked there first"
            )
        if pump is None or pump.loop is not loop or pump.finished:
            pump = self._pump = Pump(self.policy, self._slots, self._prefill_tokens, self._count)
        return pump

    def _count(self, more: Counters) -> None:
        self.counters += more


class BoundSampler:
    """A server with the key of one use; see `posttrain.engines.Sampler`."""

    def __init__(self, server: ContinuousServer, key: tuple[int | str, ...]) -> None:
        self._server = server
        self._key = key
        self._asked = 0
        self._drawn = 0

    @property
    def context(self) -> int:
        """Longest sequence that the model takes, in tokens."""
        return self._server.policy.body.context

    def prompt(self, task: Task) -> Segment:
        """A task's prompt as the model takes it."""
        return self._server.policy.prompt(task)

    def encode(self, prompt: str | Sequence[Message]) -> IntArray:
        """Token ids of a prompt."""
        return self._server.policy.tokenizer.encode_prompt(prompt)

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> IntArray:
        """Token ids of a completion as the model should write it, its end token included."""
        return self._server.policy.tokenizer.encode_completion(prompt, text)

    def decode(self, token_ids: IntArray) -> str:
        """Text of token ids, special tokens left out."""
        return self._server.policy.tokenizer.decode(token_ids)

    def encode_reply(self, prompt: str | Sequence[Message], turn: IntArray, reply: Message) -> IntArray:
        """Token ids of what somebody says after the model's turn."""
        return self._server.policy.tokenizer.encode_reply(prompt, turn, reply)

    def bind(self, *key: int | str) -> "BoundSampler":
        """A sampler with draws of its own."""
        return BoundSampler(self._server, (*self._key, *key))

    def uniform(self) -> float:
        """A number in [0, 1), another one at each call."""
        key_B, counter_B = np.array([key_of(*self._key, "uniform")], np.uint64), np.array([self._drawn], np.uint64)
        self._drawn += 1
        return float(uniform(key_B, counter_B)[0])

    async def sample(
        self, token_ids: IntArray, n: int, sampling: Sampling, vectors: FloatArray | None = None
    ) -> list[Completion]:
        """Write `n` completions of a prompt."""
        assert n >= 0, "a number of completions"
        numbers = range(self._asked, self._asked + n)
        self._asked += n
        return await self._server.complete(token_ids, [key_of(*self._key, i) for i in numbers], sampling, vectors)

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        """Texts of `n` completions."""
        return [completion.text for completion in await self.sample(self.encode(prompt), n, sampling)]

    async def logp(
        self, token_ids: IntArray, *, temperature: float = 1.0, vectors: FloatArray | None = None
    ) -> FloatArray:
        """[L-1] log-probability of each token after the first, given those before it."""
        return await self._server.logp(token_ids, temperature, vectors)

    async def score(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> float:
        """What a reward head says of the whole sequence."""
        return await self._server.score(token_ids, vectors)
