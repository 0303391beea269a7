"""Captured decoding steps, without a GPU: what captures is another, everything around it is what a GPU runs.

Steps are in float64, for which there is no kernel on a CPU, so that either way is the definition by torch's operations.
"""

import asyncio
import copy
import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from posttrain.engines import Sampling
from posttrain.engines._continuous import ContinuousServer
from posttrain.errors import RunFailed
from posttrain.kernels import PAGE
from posttrain.models import LoRA
from posttrain.policies import _cache
from posttrain.policies._graphs import ROWS, Step, captured_decoding_of, decode_with, page_count, row_count
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.lora import add_adapters
from posttrain.types import Completion
from tests.policies.made_models import load, pack, random_sequences


class Rerun:
    """Runs the step at every replay, and some times before the first, as the warm-up does."""

    def __call__(self, step: Step) -> Step:
        for _ in range(2):
            step()
        return step


class Frozen:
    """Keeps the operations of the step and the memory that they work on, as a graph does; nothing of Python runs again.

    That freezes the memory of the pages too, of which the kernels, and only they, look up the address.
    """

    def __call__(self, step: Step) -> Step:
        step()
        return make_fx(lambda: step())()  # type: ignore[no-any-return]


def policy_of(path: Path, **sizes: Any) -> LanguageModelPolicy:
    policy = load(new_folder(path, **{"width": 32, "heads": 4, "kv_heads": 2, "context": 700, **sizes}))
    policy.double()
    return policy


def written(policy: LanguageModelPolicy, turn: int, *, slots: int = 5) -> list[Completion]:
    """Completions of a few requests of several lengths: sequences come and go while others go on."""
    server = ContinuousServer(policy, turn, slots=slots, prefill_tokens=64)
    prompts = random_sequences(3, 300, 15, 16, 40, seed=turn)
    limits, numbers = (40, 5, 33, 20, 7), (2, 3, 1, 4, 1)

    async def all_of_them() -> list[list[Completion]]:
        asked = (
            server.bind(i).sample(prompt.numpy(), n, Sampling(max_tokens=limit))
            for i, (prompt, limit, n) in enumerate(zip(prompts, limits, numbers, strict=True))
        )
        return list(await asyncio.gather(*asked))

    return [completion for group in asyncio.run(all_of_them()) for completion in group]


def change_in_place(policy: LanguageModelPolicy) -> None:
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.1)


def put_elsewhere(policy: LanguageModelPolicy) -> None:
    for parameter in policy.parameters():
        parameter.data = 0.9 * parameter.data


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches that begin with next to nothing."""
    monkeypatch.setattr(_cache, "FIRST_PAGES", 2)
    monkeypatch.setattr(_cache, "FIRST_BYTES", 0)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["qwen3", "qwen2", "llama"])
def test_the_same_is_written_with_graphs_and_without(tmp_path: Path, growing: None, architecture: str) -> None:
    plain = policy_of(tmp_path, architecture=architecture)
    captured = copy.deepcopy(plain)
    decoding = decode_with(captured.body, Rerun)  # type: ignore[arg-type]
    counts = []
    for turn, change in enumerate([lambda policy: None, change_in_place, put_elsewhere, change_in_place]):
        for policy in (plain, captured):
            change(policy)
        expected, found = written(plain, turn), written(captured, turn)
        assert [c.token_ids.tolist() for c in found] == [c.token_ids.tolist() for c in expected]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.logp, other.logp, atol=1e-6)
        counts.append((decoding.captures, len(decoding._graphs)))
    captures, graphs = zip(*counts, strict=True)
    assert 0 < captures[0] <= captures[1] <= 2 * 4, "1, 2, 4 and 8 rows, of one split and of two"
    assert captures[:2] == graphs[:2], "none is captured twice,"
    assert (captures[2] - captures[1], captures[3] - captures[1]) == graphs[2:], "until weights lie elsewhere"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["qwen3", "qwen2"])
def test_what_was_captured_needs_nothing_but_its_memory(tmp_path: Path, architecture: str) -> None:
    plain = policy_of(tmp_path, architecture=architecture)
    frozen = copy.deepcopy(plain)
    decoding = decode_with(frozen.body, Frozen)  # type: ignore[arg-type]
    bodies, prompts = (plain.body, frozen.body), random_sequences(250, 3, 16, 31)
    caches = [body.new_cache(6, 700) for body in bodies]
    slots = [4, 0, 5, 2]
    states = [body.extend(cache, slots, pack(prompts)) for body, cache in zip(bodies, caches, strict=True)]
    for step in range(24):  # over the end of a page for each, and for one over that of a split
        if step == 5:
            for cache in caches:
                cache.release(5)
                cache.copy(4, [1])
            slots = [4, 0, 1, 2]
        if step in (8, 16):
            for policy in (plain, frozen):
                (change_in_place if step == 8 else put_elsewhere)(policy)
        new = pack([state.argmax()[None] for state in states[0]])
        states = [body.extend(cache, slots, new) for body, cache in zip(bodies, caches, strict=True)]
        torch.testing.assert_close(*states, atol=1e-10, rtol=0)
        if step == 11:
            body, cache = frozen.body, caches[1]
            assert decoding.captures == 2, "of one split and of two"
            again = states[1].clone()
            cache.lengths[slots] -= 1
            assert torch.equal(body.extend(cache, slots, new), again) and torch.equal(states[1], again)
    assert decoding.captures == 3, "and once more after the weights were put elsewhere"


def test_a_step_reads_what_it_was_sent_and_tokens_from_either_side(tmp_path: Path) -> None:
    policy = policy_of(tmp_path)
    decode_with(policy.body, Rerun)  # type: ignore[arg-type]
    tokens, found = random_sequences(1, 1, 1), []
    for ids in (pack(tokens), pack([tokens[0].int(), tokens[1].int(), tokens[2].int()])):
        cache = policy.body.new_cache(3, 64)
        policy.body.extend(cache, [0, 1, 2], pack(random_sequences(5, 40, 17)))
        found.append(policy.body.extend(cache, [0, 1, 2], ids))
        assert cache.lengths.tolist() == [6, 41, 18]
    assert torch.equal(*found)


@pytest.mark.slow
def test_two_hundred_steps_and_other_caches_capture_nothing_new(tmp_path: Path, growing: None) -> None:
    policy = policy_of(tmp_path)
    decoding = decode_with(policy.body, Rerun)  # type: ignore[arg-type]
    for _ in range(2):
        cache = policy.body.new_cache(3, 700)
        policy.body.extend(cache, [0, 1, 2], pack(random_sequences(5, 40, 17)))
        for step in range(200):
            policy.body.extend(cache, [0, 1, 2], pack(random_sequences(1, 1, 1, seed=step)))
    assert decoding.captures == 1


def test_adapters_take_part_and_are_captured_anew(tmp_path: Path) -> None:
    plain = policy_of(tmp_path)
    captured = copy.deepcopy(plain)
    decoding = decode_with(captured.body, Rerun)  # type: ignore[arg-type]
    first = written(captured, 0)
    for policy in (plain, captured):
        add_adapters(policy.body, LoRA(rank=2))
        policy.double()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, parameter in policy.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    count = decoding.captures
    expected, found = written(plain, 0), written(captured, 0)
    assert [c.token_ids.tolist() for c in found] == [c.token_ids.tolist() for c in expected]
    assert [c.token_ids.tolist() for c in found] != [c.token_ids.tolist() for c in first]
    assert decoding.captures == 2 * count


def test_nothing_keeps_a_cache_or_a_body_that_is_gone(tmp_path: Path) -> None:
    policy = policy_of(tmp_path)
    decode_with(policy.body, Rerun)  # type: ignore[arg-type]
    cache = policy.body.new_cache(1, 64)
    policy.body.extend(cache, [0], pack(random_sequences(5)))
    policy.body.extend(cache, [0], pack(random_sequences(1)))
    pages, body = weakref.ref(cache.keys[0]), weakref.ref(policy.body)
    assert captured_decoding_of(copy.deepcopy(policy.body)) is None, "a copy has none, on a CPU"  # type: ignore[arg-type]
    del cache, policy
    gc.collect()
    assert pages() is None and body() is None


def test_a_step_that_cannot_be_captured_is_one_clear_sentence(tmp_path: Path) -> None:
    policy = policy_of(tmp_path)

    def refuse(step: Step) -> Step:
        raise RuntimeError("operation not permitted when stream is capturing")

    decode_with(policy.body, lambda: refuse)  # type: ignore[arg-type]
    cache = policy.body.new_cache(1, 64)
    policy.body.extend(cache, [0], pack(random_sequences(5)))
    with pytest.raises(RunFailed, match=r"CUDA graph: operation not permitted.*POSTTRAIN_GRAPHS=off"):
        policy.body.extend(cache, [0], pack(random_sequences(1)))


def test_sizes_of_graphs() -> None:
    assert [row_count(n) for n in (1, 3, 5, 17, 33, 64, 65, 256, 257, 385)] == [1, 4, 8, 32, 48, 64, 96, 256, 384, 512]
    assert len({row_count(n) for n in range(1, 257)}) == len(ROWS)
    assert [page_count(n) * PAGE for n in (1, 256, 257, 513, 1025, 4000)] == [256, 256, 512, 1024, 2048, 4096]
