"""A policy whose logits are any function of the tokens so far, computed exactly, and a server made of it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posttrain.engines import Sampling
from posttrain.engines._continuous import ContinuousServer
from posttrain.engines._random import key_of
from posttrain.engines.native import Native
from posttrain.policies import Body, Packed, Policy
from posttrain.signals import LOGP
from posttrain.types import Completion, Segment, Task

END = 256
SILENT = 257
VOCABULARY = 258

Logits = Callable[[tuple[int, ...]], Tensor]


class ScriptedCache:
    def __init__(self, slots: int) -> None:
        self.tokens: list[tuple[int, ...]] = [()] * slots

    @property
    def lengths(self) -> list[int]:
        return [len(tokens) for tokens in self.tokens]

    def close(self) -> None:
        self.tokens = []

    def release(self, slot: int) -> None:
        self.tokens[slot] = ()

    def copy(self, source: int, targets: Sequence[int]) -> None:
        for target in targets:
            self.tokens[target] = self.tokens[source]


class ScriptedBody(Body):
    """A hidden state is the number under which the tokens so far are remembered."""

    def __init__(self, logits: Logits, vocabulary_size: int, context: int) -> None:
        super().__init__()
        self.width, self.vocabulary_size, self.context = 1, vocabulary_size, context
        self.weight = nn.Parameter(torch.zeros(1))
        self.script = logits
        self.seen: list[tuple[int, ...]] = []
        self.passes: list[list[int]] = []
        """Tokens appended to each slot, for each call of `extend`."""

    def new_cache(self, slots: int, capacity: int) -> ScriptedCache:
        self.cache = ScriptedCache(slots)
        return self.cache

    def extend(self, cache: ScriptedCache, slots: Sequence[int], packed: Packed) -> Tensor:  # type: ignore[override]
        assert len(set(slots)) == len(slots)
        self.passes.append(packed.lengths)
        begin = len(self.seen)
        for slot, start, end in zip(slots, packed.starts, packed.starts[1:], strict=False):
            cache.tokens[slot] += tuple(packed.token_ids_L[start:end].tolist())
            assert len(cache.tokens[slot]) <= self.context
            self.seen.append(cache.tokens[slot])
        return torch.arange(begin, len(self.seen), dtype=torch.float64)[:, None]

    def logits(self, hidden_TD: Tensor) -> Tensor:
        return torch.stack([self.script(self.seen[int(i)]) for i in hidden_TD[:, 0]])


class ByteTokenizer:
    """Tokens below 256 are bytes; END and SILENT are special."""

    end_token_ids = frozenset({END})

    def encode_prompt(self, prompt: str) -> np.ndarray:
        return np.frombuffer(prompt.encode(), np.uint8).astype(np.int64)

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""

    def decode(self, token_ids: Iterable[int]) -> str:
        return bytes(i for i in token_ids if i < 256).decode(errors="replace")


class ScriptedPolicy(Policy):
    def __init__(self, logits: Logits, vocabulary_size: int = VOCABULARY, context: int = 64) -> None:
        super().__init__()
        self.role, self.version = "policy", 0
        self.body = ScriptedBody(logits, vocabulary_size, context)
        self.tokenizer = ByteTokenizer()
        self.evaluations: list[tuple[int, float]] = []

    def prompt(self, task: Task) -> Segment:
        token_ids = self.tokenizer.encode_prompt(task.prompt)
        return Segment(actor="prompt", token_ids=token_ids, text=str(task.prompt))

    def evaluate(
        self,
        packed: Packed,
        positions_T: Tensor,
        needs: frozenset[str] = frozenset(),
        *,
        temperature: float = 1.0,
        others: Mapping[str, Policy] | None = None,
    ) -> Mapping[str, Tensor]:
        self.evaluations.append((len(packed.token_ids_L), temperature))
        ids = packed.token_ids_L.tolist()
        logps = []
        for position in positions_T.tolist():
            start = max(s for s in packed.starts if s <= position)
            logits = self.body.script(tuple(ids[start:position])) / temperature
            logps.append(logits.log_softmax(0)[ids[position]])
        return {LOGP: torch.stack(logps).float()}


def serve(policy: Policy, seed: int = 0, **settings: int) -> ContinuousServer:
    server = Native(**settings).serve(policy, seed)
    assert isinstance(server, ContinuousServer)
    return server


def bigrams(seed: int = 0, vocabulary_size: int = VOCABULARY, states: int = 64, spread: float = 1.0) -> Logits:
    """Random logits for each of some states; the state is a hash of all tokens so far."""
    table = torch.randn(states, vocabulary_size, generator=torch.Generator().manual_seed(seed)) * spread
    return lambda tokens: table[key_of(*tokens) % states]


def writes(script: Mapping[str, str | Sequence[int]], context: int = 64) -> ScriptedPolicy:
    """A policy that continues each prompt with the given text or ids, and then ends."""
    wanted = {tuple(p.encode()): tuple(a.encode() if isinstance(a, str) else a) for p, a in script.items()}

    def logits(tokens: tuple[int, ...]) -> Tensor:
        prompt = next(p for p in wanted if tokens[: len(p)] == p)
        rest = wanted[prompt][len(tokens) - len(prompt) :]
        out = torch.zeros(VOCABULARY)
        out[rest[0] if rest else END] = 1000.0
        return out

    return ScriptedPolicy(logits, context=context)


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int64)


def together(*work: Awaitable[Any]) -> list[Any]:
    async def run() -> list[Any]:
        return list(await asyncio.gather(*work))

    return asyncio.run(run())


def complete(server: ContinuousServer, prompt: str, sampling: Sampling, n: int = 1) -> list[Completion]:
    sampler = server.bind("test")
    return together(sampler.sample(sampler.encode(prompt), n, sampling))[0]


def written(completions: Sequence[Completion]) -> list[tuple[Any, ...]]:
    return [(c.token_ids.tolist(), c.logp.tolist(), c.stop_reason, c.text, c.version) for c in completions]
