"""Conversations whose prefixes stay computed: every answer is the one without, to the bit."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.engines import Sampling, wait_for
from posttrain.engines._continuous import ContinuousServer, free_kept
from posttrain.engines.native import Native
from posttrain.kernels import layers
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.types import Completion, IntArray
from tests.engines.scripted import serve
from tests.kernels import needs_kernels
from tests.policies.made_models import load

SAMPLINGS = (
    Sampling(max_tokens=9),
    Sampling(max_tokens=21, temperature=0.7),
    Sampling(max_tokens=12, top_k=20, top_p=0.9),
    Sampling(max_tokens=7, temperature=0.0),
    Sampling(max_tokens=16, stop=("a",)),
)
Answer = tuple[bytes, bytes, bytes, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "model"
    new_folder(path, layers=2, width=32, heads=2, kv_heads=1, context=512)
    return path


@pytest.fixture
def policy(folder: Path) -> LanguageModelPolicy:
    return load(folder)


def bits(completion: Completion) -> Answer:
    assert completion.entropy is not None
    return (
        completion.token_ids.tobytes(), completion.logp.tobytes(), completion.entropy.tobytes(), completion.text
    )  # fmt: skip


async def conversation(server: ContinuousServer, number: int) -> list[Answer]:
    """Six turns. Some conversations lose their thoughts, as templates do: the answer before is not in the context."""
    rng = np.random.default_rng(number % 7)  # some begin alike
    sampler, said = server.bind("attempt", number), rng.integers(0, 256, int(rng.integers(1, 60)))
    found = []
    for turn in range(6):
        completions = await sampler.sample(said, 1 + (number + turn) % 2, SAMPLINGS[number % len(SAMPLINGS)])
        found += map(bits, completions)
        own = completions[-1].token_ids
        reply = rng.integers(0, 256, int(rng.integers(0, 20)))
        said = np.concatenate([said, own[4:] if number % 3 == 0 else own, reply])
        await asyncio.sleep(0)
    return found


def played(policy: LanguageModelPolicy, conversations: int = 12, **settings: int) -> tuple[Any, ContinuousServer]:
    server = serve(policy, **settings)

    async def all_of_them() -> list[list[Answer]]:
        return await asyncio.gather(*(conversation(server, i) for i in range(conversations)))

    return wait_for(all_of_them()), server


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "settings", [{}, {"prefix_bytes": 20_000}, {"slots": 3}, {"prefill_tokens": 7}], ids=["", "little", "few", "parts"]
)
def test_answers_are_those_without(folder: Path, dtype: str, settings: dict[str, int]) -> None:
    policy = load(folder, dtype=dtype)
    wanted, server = played(policy, prefix_bytes=0)
    assert server.counters.reused_tokens == 0
    found, server = played(policy, **settings)
    if policy.body.prefix_stamp is None:
        assert server.counters.reused_tokens == 0
    else:
        assert server.counters.reusing_prompts > 0 and server.counters.reused_tokens > 0
        assert (server.counters.dropped_prefix_tokens > 0) == ("prefix_bytes" in settings)
    assert found == wanted


@needs_kernels
def test_where_decoding_rounds_otherwise_only_prompts_stay(
    policy: LanguageModelPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on processors without wide vectors."""
    monkeypatch.setattr(layers, "covered", lambda *_: False)
    assert not policy.body.decodes_alike
    wanted, without = played(policy, prefix_bytes=0)
    found, server = played(policy)
    assert found == wanted
    done, all_done = server.counters, without.counters
    assert done.prompt_tokens + done.reused_tokens == all_done.prompt_tokens
    assert 0.2 * all_done.prompt_tokens < done.reused_tokens < 0.8 * all_done.prompt_tokens


def said(length: int, seed: int = 0) -> IntArray:
    return np.random.default_rng(seed).integers(0, 256, length)


async def asked(server: ContinuousServer, prompt: IntArray, key: str = "x") -> Answer:
    [completion] = await server.bind(key).sample(prompt, 1, Sampling(max_tokens=5))
    return bits(completion)


def written(policy: LanguageModelPolicy) -> None:
    """An update, as far as the engine can know."""
    policy.version += 1


def in_place(policy: LanguageModelPolicy) -> None:
    """Another's weights, under the same number."""


@needs_kernels
@pytest.mark.parametrize("change", [written, in_place])
def test_nothing_stays_over_a_change_of_weights(policy: LanguageModelPolicy, change: Any) -> None:
    server, prompt = serve(policy), said(100)

    async def run() -> tuple[list[Answer], list[int]]:
        found = [await asked(server, prompt)]
        counts = [server.counters.reused_tokens]
        found.append(await asked(server, prompt))
        counts.append(server.counters.reused_tokens)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.mul_(1.5)
        change(policy)
        found.append(await asked(server, prompt))
        counts.append(server.counters.reused_tokens)
        return found, counts

    found, counts = wait_for(run())
    assert counts == [0, 98, 98]
    assert found[0] == found[1] != found[2]
    assert found[2] == wait_for(asked(serve(policy, prefix_bytes=0), prompt))


@needs_kernels
def test_nothing_stays_where_a_hook_reads_the_states(policy: LanguageModelPolicy) -> None:
    server, prompt, seen = serve(policy), said(60), list[int]()
    layer = policy.body.model.layers[0]  # type: ignore[attr-defined]

    async def run() -> None:
        await asked(server, prompt)
        handle = layer.register_forward_hook(lambda *given: seen.append(len(given[1][0])))
        await asked(server, prompt)
        handle.remove()

    wait_for(run())
    assert server.counters.reused_tokens == 0 and max(seen) >= 60


@needs_kernels
def test_memory_goes_with_the_loop_and_when_it_is_asked_for(policy: LanguageModelPolicy) -> None:
    server = serve(policy)

    def held() -> bool:
        scheduler = server._scheduler
        return scheduler is not None and scheduler._slots is not None

    async def run() -> Iterator[bool]:
        await asked(server, said(60))
        await asyncio.sleep(0)
        before = held()
        free_kept()
        after = held()
        await asked(server, said(60))
        await asyncio.sleep(0)
        return iter((before, after, held()))

    assert list(wait_for(run())) == [True, False, True]
    assert not held(), "the loop has ended"
    assert server.counters.reused_tokens == 0
    asyncio.run(asked(server, said(60)))
    assert held()
    asyncio.run(asked(server, said(60)))
    assert server.counters.reused_tokens == 0, "another loop"


@needs_kernels
def test_use_is_stated_once(policy: LanguageModelPolicy) -> None:
    server = Native().serve(policy, 0)
    assert isinstance(server, ContinuousServer)

    async def run() -> None:
        for _ in range(3):
            await asked(server, said(50))

    wait_for(run())
    assert server.take_timing() == {"prefix_hits": 2.0, "prefix_tokens_reused": 96.0}
    assert server.take_timing() == {}
