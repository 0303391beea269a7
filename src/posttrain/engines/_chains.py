"""The server of flow policies: pending chains are denoised together, step by step.

Every number that is drawn is a function of the chain's key and the place of the number in the chain. Weights meet
points in blocks of one size, so that a chain is the same to the bit whatever else is sampled with it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from posttrain.datasets import chains
from posttrain.engines import Counters, Sampling
from posttrain.engines._random import key_of, uniform
from posttrain.errors import PosttrainError, UserError
from posttrain.types import Completion, FloatArray, IntArray, Message, Segment, Task

if TYPE_CHECKING:
    from posttrain.policies.flow import FlowPolicy

BLOCK = 64
"""Chains that meet the weights at a time; a smaller number is filled up."""


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """Chains that somebody waits for."""

    keys: Sequence[int]
    condition: FloatArray
    temperature: float
    done: "asyncio.Future[list[Completion]]"


class ChainServer:
    """A flow that is ready to sample; see `posttrain.engines.Server`. Used from one event loop at a time."""

    def __init__(self, policy: "FlowPolicy", seed: int) -> None:
        self.policy, self.seed, self.counters = policy, seed, Counters()
        self._waiting: list[_Wanted] = []

    def bind(self, *key: int | str) -> "ChainSampler":
        """A sampler whose n-th chain is a function of (weights, condition, settings, key, n) alone."""
        return ChainSampler(self, (self.seed, *key))

    async def complete(self, condition: FloatArray, keys: Sequence[int], temperature: float) -> list[Completion]:
        """A chain for each key. What is asked for until the event loop comes round is sampled together."""
        if not keys:
            return []
        loop = asyncio.get_running_loop()
        if self._waiting and self._waiting[0].done.get_loop() is not loop:
            if not self._waiting[0].done.get_loop().is_closed():
                raise PosttrainError(f"role {self.policy.role} is being sampled from another event loop")
            self._waiting = []
        if not self._waiting:
            loop.call_soon(self._sample_all)
        wanted = _Wanted(keys=keys, condition=condition, temperature=temperature, done=loop.create_future())
        self._waiting.append(wanted)
        return await wanted.done

    def _sample_all(self) -> None:
        """Sample what is waited for, one temperature after another."""
        waiting, self._waiting = self._waiting, []
        try:
            for temperature in sorted({w.temperature for w in waiting}):
                alike = [w for w in waiting if w.temperature == temperature]
                made = self._chains(alike, temperature)
                for wanted in alike:
                    own, made = made[: len(wanted.keys)], made[len(wanted.keys) :]
                    if not wanted.done.done():
                        wanted.done.set_result(own)
        except Exception as error:
            for wanted in waiting:
                if not wanted.done.done():
                    wanted.done.set_exception(error)

    def _chains(self, wanted: Sequence[_Wanted], temperature: float) -> list[Completion]:
        keys = [key for w in wanted for key in w.keys]
        condition_BC = np.concatenate([np.repeat(w.condition[None], len(w.keys), 0) for w in wanted])
        shape = self.policy.shape
        normal_BKP = normals(keys, (shape.steps + 1) * shape.dims).reshape(len(keys), shape.steps + 1, shape.dims)
        parts = [
            self._block(normal_BKP[begin : begin + BLOCK], condition_BC[begin : begin + BLOCK], temperature)
            for begin in range(0, len(keys), BLOCK)
        ]
        self.counters += Counters(
            sampled_tokens=len(keys) * (1 if shape.token == "chain" else shape.steps + 1),
            completions=len(keys),
            decode_steps=len(parts) * shape.steps,
            slot_steps=len(parts) * shape.steps * BLOCK,
        )
        return [completion for points_BKP, logp_BK in parts for completion in self._written(points_BKP, logp_BK)]

    @torch.no_grad()
    def _block(
        self, normal_BKP: FloatArray, condition_BC: FloatArray, temperature: float
    ) -> tuple[FloatArray, FloatArray]:
        """[B, K + 1, P] points and [B, K + 1] log-probabilities of up to a block of chains."""
        policy, count = self.policy, len(normal_BKP)
        like = next(policy.parameters())

        def filled(rows: FloatArray) -> Tensor:
            full = np.zeros((BLOCK, *rows.shape[1:]), np.float32)
            full[:count] = rows
            return torch.from_numpy(full).to(like)

        from posttrain.policies.flow import normal_logp

        noise_BKP, condition = filled(normal_BKP), filled(condition_BC)
        point_BP = noise_BKP[:, 0]
        points, logps = [point_BP], [normal_logp(point_BP)]
        for place in range(policy.shape.steps):
            place_B = torch.full((BLOCK,), place, device=like.device)
            mean_BP, deviation_BP = policy.transition(point_BP, place_B, condition, temperature or 1.0)
            point_BP = mean_BP if temperature == 0 else mean_BP + deviation_BP * noise_BKP[:, place + 1]
            points.append(point_BP)
            logps.append(normal_logp(point_BP, mean_BP, deviation_BP))
        points_BKP, logp_BK = torch.stack(points, 1)[:count], torch.stack(logps, 1)[:count]
        return points_BKP.float().cpu().numpy(), logp_BK.float().cpu().numpy()

    def _written(self, points_BKP: FloatArray, logp_BK: FloatArray) -> list[Completion]:
        """Chains as tokens."""
        policy, shape = self.policy, self.policy.shape
        first = Completion(
            token_ids=np.arange(1, shape.steps + 2, dtype=np.int64),
            logp=np.zeros(0, np.float32),
            stop_reason="stop",
            version=policy.version,
            text="",
        )
        numbers = shape.dims if shape.per_number else 1
        written = []
        for points_KP, logp_K in zip(points_BKP, logp_BK, strict=True):
            text = chains.write_point(points_KP[-1])
            if shape.token == "step":
                vectors, logp = chains.padded(points_KP, policy.width), logp_K / np.float32(numbers)
                written.append(replace(first, logp=logp, text=text, vectors=vectors))
                continue
            ends = np.array([policy.end_id], np.int64)
            vectors = chains.padded(points_KP.reshape(1, -1), policy.width)
            over = (shape.steps + 1) * numbers if shape.per_number else 1
            logp = np.array([logp_K.sum(dtype=np.float64) / over], np.float32)
            written.append(replace(first, token_ids=ends, logp=logp, text=text, vectors=vectors))
        return written


class ChainSampler:
    """A server with the key of one use; see `posttrain.engines.Sampler`."""

    def __init__(self, server: ChainServer, key: tuple[int | str, ...]) -> None:
        self._server, self._key = server, key
        self._asked = self._drawn = 0

    @property
    def context(self) -> int:
        """Longest sequence."""
        return self._server.policy.context

    def bind(self, *key: int | str) -> "ChainSampler":
        """A sampler with draws of its own."""
        return ChainSampler(self._server, (*self._key, *key))

    def encode(self, prompt: str | Sequence[Message]) -> IntArray:
        """One token, the condition."""
        return np.array([chains.CONDITION], np.int64)

    def prompt(self, task: Task) -> Segment:
        """The task's condition. Raises `UserError` for a prompt that is something else."""
        return self._server.policy.prompt(task)

    def encode_reply(self, prompt: str | Sequence[Message], turn: IntArray, reply: Message) -> IntArray:
        """Nobody talks to a flow."""
        raise UserError(f"role {self._server.policy.role} is a flow: it reads no replies; take the rollout 'control'")

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> IntArray:
        """Demonstrations of a flow are points: `Policy.demonstration`."""
        raise UserError(f"role {self._server.policy.role} is a flow: demonstrations can be imitated in the sft stage "
                        "only")  # fmt: skip

    def decode(self, token_ids: IntArray) -> str:
        """Ids of a flow have no text; its completions bring theirs."""
        return ""

    def uniform(self) -> float:
        """A number in [0, 1), another one at each call."""
        key_B, counter_B = np.array([key_of(*self._key, "uniform")], np.uint64), np.array([self._drawn], np.uint64)
        self._drawn += 1
        return float(uniform(key_B, counter_B)[0])

    async def sample(
        self, token_ids: IntArray, n: int, sampling: Sampling, vectors: FloatArray | None = None
    ) -> list[Completion]:
        """`n` chains after the condition that is the last token. At temperature 0 there is noise in the start only."""
        shape = self._server.policy.shape
        cut = [name for name in ("top_k", "top_p", "min_p", "stop", "stop_token_ids")
               if getattr(sampling, name) != getattr(Sampling(), name)]  # fmt: skip
        if cut:
            raise UserError(f"role {self._server.policy.role} is a flow, and {cut[0]} is for text; leave it out")
        length = 1 if shape.token == "chain" else shape.steps + 1
        if sampling.max_tokens < length:
            raise UserError(
                f"role {self._server.policy.role} is a flow whose chains have {length} tokens, and cannot be cut at "
                f"max_tokens {sampling.max_tokens}"
            )
        if shape.condition and vectors is None:
            raise UserError(
                f"role {self._server.policy.role} is a flow that is conditioned on {shape.condition} numbers, and this "
                "rollout gives it text only; take one that passes on the prompt's vectors, such as 'independent'"
            )
        condition = np.zeros(0, np.float32) if vectors is None else vectors[-1, : shape.condition]
        numbers = range(self._asked, self._asked + n)
        self._asked += n
        return await self._server.complete(condition, [key_of(*self._key, i) for i in numbers], sampling.temperature)

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        """Texts of `n` end points."""
        asked = self.prompt(Task(key="", prompt=prompt if isinstance(prompt, str) else tuple(prompt)))
        return [made.text for made in await self.sample(asked.token_ids, n, sampling, asked.vectors)]

    async def logp(
        self, token_ids: IntArray, *, temperature: float = 1.0, vectors: FloatArray | None = None
    ) -> FloatArray:
        """Ids alone have no density."""
        raise UserError(f"role {self._server.policy.role} is a flow: it cannot judge text")

    async def score(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> float:
        """Flows have no reward head."""
        raise UserError(f"role {self._server.policy.role} is a flow: it has no reward head")


def normals(keys: Sequence[int], count: int) -> FloatArray:
    """[B, count] standard normal numbers, each a function of its key and place (Box and Muller 1958)."""
    key_B = np.repeat(np.array(keys, np.uint64), 2 * count)
    counter_B = np.tile(np.arange(2 * count, dtype=np.uint64), len(keys))
    u = uniform(key_B, counter_B).reshape(len(keys), count, 2)
    return np.asarray(np.sqrt(-2.0 * np.log1p(-u[..., 0])) * np.cos(2.0 * np.pi * u[..., 1]), np.float32)
