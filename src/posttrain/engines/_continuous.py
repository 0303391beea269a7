"""The server of the native engine: validates requests, keys their random draws, and runs the scheduler."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import numpy as np
import torch

from posttrain.engines import Caching, Counters, Sampling, Watch, at_end
from posttrain.engines._passes import Piece, pack
from posttrain.engines._random import key_of, uniform
from posttrain.engines._requests import Request
from posttrain.engines._scheduler import Scheduler
from posttrain.engines._watching import likeliest
from posttrain.errors import PosttrainError, UserError
from posttrain.policies import Policy, _cache
from posttrain.signals import LOGP, SCORE, SCORES
from posttrain.types import Array, Completion, FloatArray, IntArray, Message, Segment, Task

PLACES = 16
"""Of a sequence, whose likeliest tokens are found between two steps of what is being sampled."""


class ContinuousServer:
    """A policy that is served; see `posttrain.engines.Server`. Used from one event loop at a time."""

    def __init__(self, policy: Policy, seed: int, *, slots: int, prefill_tokens: int, prefix_bytes: int = 0) -> None:
        self.policy = policy
        self.seed = seed
        self.counters = Counters()
        self._slots = slots
        self._prefill_tokens = prefill_tokens
        self._prefix_bytes = prefix_bytes
        self._scheduler: Scheduler | None = None
        self._stated = Counters()
        _servers.add(self)

    def bind(self, *key: int | str) -> "BoundSampler":
        """A sampler whose n-th completion is a function of (weights, prompt, settings, key, n) alone."""
        return BoundSampler(self, (self.seed, *key))

    async def complete(
        self,
        token_ids: IntArray,
        keys: list[int],
        sampling: Sampling,
        vectors: FloatArray | None = None,
        watch: Watch | None = None,
    ) -> list[Completion]:
        """Write a completion of the prompt for each key. Raises `UserError` before anything is sampled."""
        request = self._request(token_ids, vectors, sampling, watch or Watch())
        return await self._running_scheduler().complete(request, keys) if keys else []

    async def go_on(
        self,
        token_ids: IntArray,
        keys: list[int],
        sampling: Sampling,
        vectors: FloatArray | None = None,
        stored: Sequence[Array] | None = None,
    ) -> list[Completion]:
        """As `complete`, with keys and values. Raises `UserError` for a model that has other things to keep."""
        assert stored is None or len(keys) == 1, "they are of one completion"
        request = self._request(token_ids, None if stored is not None else vectors, sampling, Watch())
        request = replace(request, caching=Caching(stored=stored))
        found = await self._running_scheduler().complete(request, keys) if keys else []
        if any(completion.cache is None and completion.stop_reason == "length" for completion in found):
            raise UserError(
                f"the model in the role '{self.policy.role}' keeps more than keys and values of a text, so that they "
                "cannot go on alone; take schedule.caches=renewed"
            )
        return found

    async def logp(self, token_ids: IntArray, temperature: float, vectors: FloatArray | None = None) -> FloatArray:
        """[L-1] log-probability of each token after the first. Raises `UserError` for an invalid sequence."""
        sequence = self._piece(token_ids, vectors, reserved=0)
        if not temperature > 0:
            raise UserError(
                f"log-probabilities at temperature {temperature} are not defined; use a positive temperature "
                "(greedy completions record theirs at 1)"
            )
        if len(sequence) == 1:
            return np.zeros(0, np.float32)
        return await self._running_scheduler().score(sequence, LOGP, temperature)

    async def likeliest(self, token_ids: IntArray, count: int, temperature: float) -> tuple[IntArray, FloatArray]:
        """[L-1, K] likeliest tokens after each token but the last, and their log-probabilities."""
        logp = await self.logp(token_ids, temperature)
        body = self.policy.body
        packed = pack([Piece(np.array(token_ids, np.int64))], next(self.policy.parameters()).device)
        count = min(count, body.vocabulary_size)
        ids, logps = [np.zeros((0, count), np.int64)], [np.zeros((0, count), np.float32)]
        with torch.no_grad():
            hidden_LD = body.hidden(packed)
        for place in range(len(logp)):
            with torch.no_grad():
                logits_1V = body.logits(hidden_LD[place : place + 1])
            found = likeliest(logits_1V, temperature, count, (int(token_ids[place + 1]), float(logp[place])))
            ids.append(found[0])
            logps.append(found[1])
            if place % PLACES == 0:
                await asyncio.sleep(0)  # what is being sampled goes on
        return np.concatenate(ids), np.concatenate(logps)

    async def next_logp(self, token_ids: IntArray, choices: Sequence[int], temperature: float) -> FloatArray:
        """[K] log-probability of each of several tokens after a prompt: logits of the last place only, in one pass with
        all prompts that wait, whose shared prefixes are computed once.
        """
        sequence = self._piece(token_ids, None, reserved=0)
        return await self._running_scheduler().score(sequence, LOGP, temperature, tuple(choices))

    async def score(self, token_ids: IntArray, vectors: FloatArray | None = None) -> float:
        """A reward head's score of the whole sequence. Raises `UserError` for an invalid sequence."""
        (value,) = await self._running_scheduler().score(self._piece(token_ids, vectors, reserved=0), SCORE)
        return float(value)

    async def scores(self, token_ids: IntArray, vectors: FloatArray | None = None) -> FloatArray:
        """[O] all outputs of a reward head. Raises `UserError` for an invalid sequence."""
        found = await self._running_scheduler().score(self._piece(token_ids, vectors, reserved=0), SCORES)
        return np.asarray(found[0], np.float32)

    def attention(self, token_ids: IntArray, share: float, vectors: FloatArray | None) -> FloatArray:
        """[L] how much the last token attends to each. Raises `UserError` for a body that does not show it."""
        sequence, body = self._piece(token_ids, vectors, reserved=0), self.policy.body
        if not body.shows_attention:
            raise UserError(
                f"the attention of the role '{self.policy.role}' is to be read, which only models that run natively "
                "show (Llama-, Qwen2- and Qwen3-shaped decoders), not those of transformers; give another model"
            )
        packed = pack([sequence], next(self.policy.parameters()).device)
        self._count(Counters(scored_tokens=len(sequence)))
        return body.attention(packed, share).float().cpu().numpy()

    def _request(self, token_ids: IntArray, vectors: FloatArray | None, sampling: Sampling, watch: Watch) -> Request:
        """The request, with this model's token limit and stop tokens."""
        body = self.policy.body
        prompt = self._piece(token_ids, vectors, reserved=1)
        beyond = [i for i in sampling.stop_token_ids if i >= body.vocabulary_size]
        if beyond:
            raise UserError(
                f"stop_token_ids has {beyond[0]}, but the vocabulary of role {self.policy.role} has the ids 0 to "
                f"{body.vocabulary_size - 1}; leave it out"
            )
        ends = {i for i in self.policy.tokenizer.end_token_ids if i < body.vocabulary_size}
        return Request(
            prompt=prompt,
            sampling=sampling,
            max_tokens=min(sampling.max_tokens, body.context - len(prompt)),
            stop_token_ids=np.array(sorted(ends.union(sampling.stop_token_ids)), np.int64),
            watch=watch,
        )

    def _piece(self, token_ids: IntArray, vectors: FloatArray | None, reserved: int) -> Piece:
        """Validated tokens and vectors; tokens beyond the given vectors have none."""
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
        """A validated copy of ids, with `reserved` tokens of the context left."""
        body, role = self.policy.body, self.policy.role
        ids = np.array(token_ids, np.int64)
        if ids.ndim != 1 or not len(ids):
            raise UserError(f"role {role} needs a list of at least one token id, got an array of shape {ids.shape}")
        if len(ids) > body.context - reserved:
            room = f", of which {reserved} must be left for the completion" if reserved else ""
            raise UserError(
                f"{len(ids)} tokens are too many for role {role}: its context is {body.context} tokens{room}. Use at "
                f"most {body.context - reserved}: drop long tasks, or set models.{role}.context higher if the "
                "model allows it."
            )
        if ids.min() < 0 or ids.max() >= body.vocabulary_size:
            wrong = int(ids[(ids < 0) | (ids >= body.vocabulary_size)][0])
            raise UserError(
                f"token id {wrong} is not in the vocabulary of role {role}, which has the ids 0 to "
                f"{body.vocabulary_size - 1}; encode text with the sampler's own encode"
            )
        return ids

    def _running_scheduler(self) -> Scheduler:
        """The scheduler of the running event loop."""
        scheduler, loop = self._scheduler, asyncio.get_running_loop()
        if scheduler and scheduler.loop is not loop and scheduler.busy and not scheduler.loop.is_closed():
            raise PosttrainError(
                f"role {self.policy.role} is being sampled from another event loop: await its requests first"
            )
        if scheduler is None or scheduler.loop is not loop:
            if scheduler is not None:
                scheduler.close()
            scheduler = self._scheduler = Scheduler(
                self.policy, self._slots, self._prefill_tokens, self._count, self._prefix_bytes
            )
            at_end(scheduler.close)
        return scheduler

    def take_timing(self) -> Mapping[str, float]:
        """How prompts were shortened since the last call by what was kept; nothing where nothing was."""
        done, self._stated = self.counters - self._stated, self.counters
        found = {
            "prefix_hits": done.reusing_prompts,
            "prefix_tokens_reused": done.reused_tokens,
            "prefix_tokens_dropped": done.dropped_prefix_tokens,
        }
        return {name: float(count) for name, count in found.items() if count}

    @property
    def prefix_bytes_held(self) -> int:
        """Bytes of keys and values that stay for later requests."""
        return 0 if self._scheduler is None else self._scheduler.prefix_bytes_held

    def free_prefixes(self) -> None:
        """Free what is kept for later requests of the running event loop."""
        if self._scheduler is not None and self._scheduler.loop is asyncio.get_running_loop():
            self._scheduler.close()

    def _count(self, more: Counters) -> None:
        self.counters += more


class BoundSampler:
    """A server with the key of one use; see `posttrain.engines.Sampler`."""

    def __init__(self, server: ContinuousServer, key: tuple[int | str, ...]) -> None:
        self._server = server
        self._key = key
        self._requested = 0
        self._draws = 0

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
        """Token ids of a reply to the model's turn."""
        return self._server.policy.tokenizer.encode_reply(prompt, turn, reply)

    def bind(self, *key: int | str) -> "BoundSampler":
        """A sampler with an extended key."""
        return BoundSampler(self._server, (*self._key, *key))

    def uniform(self) -> float:
        """The next random number in [0, 1)."""
        key_B, counter_B = np.array([key_of(*self._key, "uniform")], np.uint64), np.array([self._draws], np.uint64)
        self._draws += 1
        return float(uniform(key_B, counter_B)[0])

    async def sample(
        self, token_ids: IntArray, n: int, sampling: Sampling, vectors: FloatArray | None = None
    ) -> list[Completion]:
        """Write `n` completions of a prompt."""
        return await self._server.complete(token_ids, self._keys(n), sampling, vectors)

    async def go_on(
        self,
        token_ids: IntArray,
        n: int,
        sampling: Sampling,
        vectors: FloatArray | None = None,
        stored: Sequence[Array] | None = None,
    ) -> list[Completion]:
        """As `sample`, with keys and values."""
        return await self._server.go_on(token_ids, self._keys(n), sampling, vectors, stored)

    def _keys(self, n: int) -> list[int]:
        """Keys of the next `n` completions."""
        assert n >= 0, "a number of completions"
        numbers = range(self._requested, self._requested + n)
        self._requested += n
        return [key_of(*self._key, i) for i in numbers]

    async def watched(self, token_ids: IntArray, n: int, sampling: Sampling, watch: Watch) -> list[Completion]:
        """As `sample`, watched."""
        keys = self._keys(n)
        return await self._server.complete(token_ids, keys, sampling, watch=watch)

    async def likeliest(
        self, token_ids: IntArray, count: int, *, temperature: float = 1.0
    ) -> tuple[IntArray, FloatArray]:
        """[L-1, K] likeliest tokens at each place after the first, and their log-probabilities."""
        return await self._server.likeliest(token_ids, count, temperature)

    def encode_chat(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> IntArray:
        """Token ids of messages by the chat template, which is given the tools."""
        return self._server.policy.tokenizer.encode_chat(messages, tools=tools)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for."""
        return self._server.policy.tokenizer.token_bytes(token_id)

    def tool_prompt(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """What the chat template makes of tools and nothing else."""
        return self._server.policy.tokenizer.tool_prompt(tools)

    def tokenizer_file(self) -> tuple[str, frozenset[int], int]:
        """The tokenizer, the ids that end a completion, and the size of the vocabulary."""
        policy = self._server.policy
        size = policy.body.vocabulary_size
        ends = frozenset(i for i in policy.tokenizer.end_token_ids if i < size)
        return policy.tokenizer.file_content(), ends, size

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        """Texts of `n` completions."""
        return [completion.text for completion in await self.sample(self.encode(prompt), n, sampling)]

    async def logp(
        self, token_ids: IntArray, *, temperature: float = 1.0, vectors: FloatArray | None = None
    ) -> FloatArray:
        """[L-1] log-probability of each token after the first, given those before it."""
        return await self._server.logp(token_ids, temperature, vectors)

    async def next_logp(self, token_ids: IntArray, choices: Sequence[int], temperature: float = 1.0) -> FloatArray:
        """[K] log-probability of each of several tokens after a prompt, in one pass."""
        return await self._server.next_logp(token_ids, choices, temperature)

    async def score(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> float:
        """A reward head's score of the whole sequence."""
        return await self._server.score(token_ids, vectors)

    async def scores(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> FloatArray:
        """[O] a reward head's outputs for the whole sequence."""
        return await self._server.scores(token_ids, vectors)

    @property
    def attends(self) -> bool:
        """Whether this model's body shows its attention."""
        return self._server.policy.body.shows_attention

    async def attention(
        self, token_ids: IntArray, *, share: float = 0.5, vectors: FloatArray | None = None
    ) -> FloatArray:
        """[L] how much the last token attends to each."""
        return self._server.attention(token_ids, share, vectors)


def free_kept() -> None:
    """Free the memory that served sequences left to the next ones, in the event loop that samples them."""
    for server in tuple(_servers):
        server.free_prefixes()
    _cache.free_kept()


_servers: "WeakSet[ContinuousServer]" = WeakSet()
