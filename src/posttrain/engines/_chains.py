"""The server of flow policies: denoises pending chains in batches.

Every random number is a function of the chain's key and of its position in the chain. Chains are computed in blocks of
constant size, so that a chain is bit-identical whatever else is sampled with it.
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
from posttrain.policies import Packed
from posttrain.signals import SCORE
from posttrain.types import Completion, FloatArray, IntArray, Message, Segment, Task

if TYPE_CHECKING:
    from posttrain.policies.flow import FlowPolicy

BLOCK = 64
"""Chains per forward pass; a smaller batch is padded."""


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """A request for chains, and the future of its completions."""

    keys: Sequence[int]
    condition: FloatArray
    temperature: float
    future: "asyncio.Future[list[Completion]]"


class ChainServer:
    """A flow that is served; see `posttrain.engines.Server`. Used from one event loop at a time."""

    def __init__(self, policy: "FlowPolicy", seed: int) -> None:
        self.policy, self.seed, self.counters = policy, seed, Counters()
        self._waiting: list[_Pending] = []

    def bind(self, *key: int | str) -> "ChainSampler":
        """A sampler whose n-th chain is a function of (weights, condition, settings, key, n) alone."""
        return ChainSampler(self, (self.seed, *key))

    async def complete(self, condition: FloatArray, keys: Sequence[int], temperature: float) -> list[Completion]:
        """A chain for each key. All requests of one iteration of the event loop are sampled together."""
        if not keys:
            return []
        loop = asyncio.get_running_loop()
        if self._waiting and self._waiting[0].future.get_loop() is not loop:
            if not self._waiting[0].future.get_loop().is_closed():
                raise PosttrainError(f"role {self.policy.role} is being sampled from another event loop")
            self._waiting = []
        if not self._waiting:
            loop.call_soon(self._sample_all)
        pending = _Pending(keys=keys, condition=condition, temperature=temperature, future=loop.create_future())
        self._waiting.append(pending)
        return await pending.future

    @torch.no_grad()
    def score(self, token_ids: IntArray, vectors: FloatArray | None) -> float:
        """The score of the end point of a chain. Raises `UserError` where there is none, or no reward head."""
        role = self.policy.role
        if self.policy.head != "reward":
            raise UserError(f"the flow in the role '{role}' has no reward head; set models.{role}.head=reward")
        if vectors is None or vectors.shape != (len(token_ids), self.policy.width):
            raise UserError(f"the reward model in the role '{role}' is a flow, which scores points and not text")
        if self.policy.end_id not in token_ids:
            raise UserError(f"the reward model in the role '{role}' is a flow, and this chain has no end point")
        device = next(self.policy.parameters()).device
        packed = Packed(
            token_ids_L=torch.as_tensor(token_ids, dtype=torch.int64, device=device),
            starts=(0, len(token_ids)),
            vectors_LD=torch.as_tensor(vectors, dtype=torch.float32, device=device),
        )
        last_1 = torch.tensor([len(token_ids) - 1], device=device)
        return float(self.policy.evaluate(packed, last_1, frozenset({SCORE}))[SCORE][0])

    def _sample_all(self) -> None:
        """Sample all pending requests, one temperature after another."""
        waiting, self._waiting = self._waiting, []
        try:
            for temperature in sorted({w.temperature for w in waiting}):
                same = [w for w in waiting if w.temperature == temperature]
                made = self._chains(same, temperature)
                for pending in same:
                    own, made = made[: len(pending.keys)], made[len(pending.keys) :]
                    if not pending.future.done():
                        pending.future.set_result(own)
        except Exception as error:
            for pending in waiting:
                if not pending.future.done():
                    pending.future.set_exception(error)

    def _chains(self, pending: Sequence[_Pending], temperature: float) -> list[Completion]:
        keys = [key for w in pending for key in w.keys]
        condition_BC = np.concatenate([np.repeat(w.condition[None], len(w.keys), 0) for w in pending])
        shape = self.policy.shape
        normal_BKP = normals(keys, (shape.steps + 1) * shape.dims).reshape(len(keys), shape.steps + 1, shape.dims)
        parts = [
            self._block(normal_BKP[start : start + BLOCK], condition_BC[start : start + BLOCK], temperature)
            for start in range(0, len(keys), BLOCK)
        ]
        self.counters += Counters(
            sampled_tokens=len(keys) * (1 if shape.token == "chain" else shape.steps + 1),
            completions=len(keys),
            decode_steps=len(parts) * shape.steps,
            slot_steps=len(parts) * shape.steps * BLOCK,
        )
        return [completion for block in parts for completion in self._completions(*block)]

    @torch.no_grad()
    def _block(
        self, normal_BKP: FloatArray, condition_BC: FloatArray, temperature: float
    ) -> tuple[FloatArray, FloatArray]:
        """[B, K + 1, P] points of at most one block of chains, [B, K + 1, 2] log-probabilities and entropies."""
        policy, count = self.policy, len(normal_BKP)
        like = next(policy.parameters())

        def filled(rows: FloatArray) -> Tensor:
            full = np.zeros((BLOCK, *rows.shape[1:]), np.float32)
            full[:count] = rows
            return torch.from_numpy(full).to(like)

        from posttrain.policies.flow import normal_entropy, normal_logp

        noise_BKP, condition = filled(normal_BKP), filled(condition_BC)
        point_BP = noise_BKP[:, 0]
        points, logps = [point_BP], [normal_logp(point_BP)]
        entropies = [normal_entropy(torch.ones_like(point_BP))]
        for place in range(policy.shape.steps):
            place_B = torch.full((BLOCK,), place, device=like.device)
            mean_BP, std_BP = policy.transition(point_BP, place_B, condition, temperature or 1.0)
            point_BP = mean_BP if temperature == 0 else mean_BP + std_BP * noise_BKP[:, place + 1]
            points.append(point_BP)
            logps.append(normal_logp(point_BP, mean_BP, std_BP))
            entropies.append(normal_entropy(std_BP))
        points_BKP = torch.stack(points, 1)[:count]
        numbers_BK2 = torch.stack([torch.stack(logps, 1), torch.stack(entropies, 1)], -1)[:count]
        return points_BKP.float().cpu().numpy(), numbers_BK2.float().cpu().numpy()

    def _completions(self, points_BKP: FloatArray, numbers_BK2: FloatArray) -> list[Completion]:
        """Completions of chains."""
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
        for points_KP, numbers_K2 in zip(points_BKP, numbers_BK2, strict=True):
            text = chains.write_point(points_KP[-1])
            if shape.token == "step":
                vectors = chains.padded(points_KP, policy.width)
                logp, entropy = (numbers_K2 / np.float32(numbers)).T.copy()
                written.append(replace(first, logp=logp, entropy=entropy, text=text, vectors=vectors))
                continue
            ends = np.array([policy.end_id], np.int64)
            vectors = chains.padded(points_KP.reshape(1, -1), policy.width)
            over = (shape.steps + 1) * numbers if shape.per_number else 1
            logp, entropy = (numbers_K2.sum(0, dtype=np.float64)[:, None] / over).astype(np.float32)
            written.append(replace(first, token_ids=ends, logp=logp, entropy=entropy, text=text, vectors=vectors))
        return written


class ChainSampler:
    """A server with the key of one use; see `posttrain.engines.Sampler`."""

    def __init__(self, server: ChainServer, key: tuple[int | str, ...]) -> None:
        self._server, self._key = server, key
        self._requested = self._draws = 0

    @property
    def context(self) -> int:
        """Longest sequence."""
        return self._server.policy.context

    def bind(self, *key: int | str) -> "ChainSampler":
        """A sampler with an extended key."""
        return ChainSampler(self._server, (*self._key, *key))

    def encode(self, prompt: str | Sequence[Message]) -> IntArray:
        """One token, the condition."""
        return np.array([chains.CONDITION], np.int64)

    def prompt(self, task: Task) -> Segment:
        """The task's condition. Raises `UserError` for a prompt that is something else."""
        return self._server.policy.prompt(task)

    def encode_reply(self, prompt: str | Sequence[Message], turn: IntArray, reply: Message) -> IntArray:
        """Refused: a flow takes no replies."""
        raise UserError(f"role {self._server.policy.role} is a flow: it takes no replies; use the rollout 'control'")

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> IntArray:
        """Refused: demonstrations of a flow are points, see `Policy.demonstration`."""
        raise UserError(f"role {self._server.policy.role} is a flow: demonstrations can be imitated in the sft stage "
                        "only")  # fmt: skip

    def decode(self, token_ids: IntArray) -> str:
        """Empty: ids of a flow have no text; its completions carry theirs."""
        return ""

    def uniform(self) -> float:
        """The next random number in [0, 1)."""
        key_B, counter_B = np.array([key_of(*self._key, "uniform")], np.uint64), np.array([self._draws], np.uint64)
        self._draws += 1
        return float(uniform(key_B, counter_B)[0])

    async def sample(
        self, token_ids: IntArray, n: int, sampling: Sampling, vectors: FloatArray | None = None
    ) -> list[Completion]:
        """`n` chains given the condition, which is the last token. At temperature 0 only the start is random."""
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
                "rollout gives it text only; use one that passes on the prompt's vectors, such as 'independent'"
            )
        condition = np.zeros(0, np.float32) if vectors is None else vectors[-1, : shape.condition]
        numbers = range(self._requested, self._requested + n)
        self._requested += n
        return await self._server.complete(condition, [key_of(*self._key, i) for i in numbers], sampling.temperature)

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        """Texts of `n` end points."""
        segment = self.prompt(Task(key="", prompt=prompt if isinstance(prompt, str) else tuple(prompt)))
        return [made.text for made in await self.sample(segment.token_ids, n, sampling, segment.vectors)]

    async def logp(
        self, token_ids: IntArray, *, temperature: float = 1.0, vectors: FloatArray | None = None
    ) -> FloatArray:
        """Refused: ids alone have no density."""
        raise UserError(f"role {self._server.policy.role} is a flow: it has no log-probabilities of text")

    async def score(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> float:
        """A reward head's score of the end point."""
        return self._server.score(token_ids, vectors)

    async def scores(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> FloatArray:
        """[1] a reward head's score of the end point."""
        return np.array([self._server.score(token_ids, vectors)], np.float32)


def normals(keys: Sequence[int], count: int) -> FloatArray:
    """[B, count] standard normal numbers, each a function of its key and position (Box and Muller 1958)."""
    key_B = np.repeat(np.array(keys, np.uint64), 2 * count)
    counter_B = np.tile(np.arange(2 * count, dtype=np.uint64), len(keys))
    u = uniform(key_B, counter_B).reshape(len(keys), count, 2)
    return np.asarray(np.sqrt(-2.0 * np.log1p(-u[..., 0])) * np.cos(2.0 * np.pi * u[..., 1]), np.float32)
