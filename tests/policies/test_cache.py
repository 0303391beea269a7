"""Pages of keys and values: shared prompts, memory that follows the tokens, and what a slot holds stays what it was."""

import os
import platform
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from posttrain import kernels
from posttrain.kernels import PAGE
from posttrain.policies import _cache, _decoding
from posttrain.policies._cache import KeyValueCache
from posttrain.policies.folder import new_folder
from tests.kernels import needs_kernels
from tests.policies.made_models import load, pack, random_sequences


def cache_of(slots: int, dtype: torch.dtype = torch.float32) -> KeyValueCache:
    """Two layers of three heads; float64 is for what has no kernel."""
    return KeyValueCache(layers=2, slots=slots, heads=3, width=4, capacity=64, dtype=dtype, device=torch.device("cpu"))


def append(cache: KeyValueCache, slot: int, tokens: Tensor) -> None:
    """Write numbers [T, 3, 4] as keys, and twice them as values, of both layers."""
    begin = cache.lengths[slot]
    cache.reserve([slot], [begin + len(tokens)])
    places = cache.places(np.full(len(tokens), slot), np.arange(begin, begin + len(tokens)))
    for layer in (0, 1):
        cache.write(layer, places, tokens + layer, 2 * tokens + layer)
    cache.lengths[slot] += len(tokens)


def held_by(cache: KeyValueCache, slot: int, layer: int) -> tuple[Tensor, Tensor]:
    length = cache.lengths[slot]
    key, value = cache.read(layer, torch.from_numpy(cache.table([slot], length)).long())
    return key[0, :, :length].transpose(0, 1), value[0, :, :length].transpose(0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_group_shares_the_full_pages_of_its_prompt(dtype: torch.dtype) -> None:
    cache = cache_of(9, dtype)
    prompt = torch.randn(6 * PAGE + 4, 3, 4, dtype=dtype)
    append(cache, 0, prompt)
    assert cache.pages == 7
    cache.copy(0, range(8))
    assert cache.pages == 7 + 7, "six pages in common, and a last one each"
    news = [torch.randn(PAGE, 3, 4, dtype=dtype) for _ in range(8)]
    for slot, new in enumerate(news):
        append(cache, slot, new)
    for slot, new in enumerate(news):
        for layer in (0, 1):
            key, value = held_by(cache, slot, layer)
            whole = torch.cat((prompt, new))
            assert torch.equal(key, whole + layer) and torch.equal(value, 2 * whole + layer)
    for slot in range(8):
        cache.release(slot)
    assert cache.pages == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whatever_happens_a_slot_holds_what_was_written(dtype: torch.dtype) -> None:
    draw, cache = random.Random(0), cache_of(12, dtype)
    expected: dict[int, Tensor] = {}
    for _ in range(400):
        slot = draw.randrange(12)
        what = draw.choice(("append", "append", "release", "copy"))
        if what == "append":
            new = torch.randn(draw.randint(1, 3 * PAGE), 3, 4, dtype=dtype)
            append(cache, slot, new)
            expected[slot] = torch.cat((expected[slot], new)) if slot in expected else new
        elif what == "release":
            cache.release(slot)
            expected.pop(slot, None)
        elif slot in expected:
            targets = draw.sample(range(12), 4)
            cache.copy(slot, targets)
            expected |= dict.fromkeys(targets, expected[slot])
        pages = sum(-(-len(tokens) // PAGE) for tokens in expected.values())
        assert cache.pages <= pages
    for slot, tokens in expected.items():
        key, value = held_by(cache, slot, 1)
        assert cache.lengths[slot] == len(tokens)
        assert torch.equal(key, tokens + 1) and torch.equal(value, 2 * tokens + 1)


def addresses(cache: KeyValueCache) -> list[int]:
    return [pages.data_ptr() for pages in (*cache.keys, *cache.values)]


@needs_kernels
def test_a_closed_cache_leaves_its_memory_to_the_next_of_its_shape_if_it_is_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def closed(pages: int) -> list[int]:
        cache = cache_of(2)
        append(cache, 0, torch.ones(pages * PAGE, 3, 4))
        where = addresses(cache)
        cache.close()
        return where

    page_bytes = 2 * 2 * PAGE * 3 * 4 * 4
    monkeypatch.setattr(_cache, "KEPT_BYTES", 3 * page_bytes)
    monkeypatch.setattr(_cache, "_kept", {})
    kept = closed(3)
    other = cache_of(2, torch.float64)
    append(other, 0, torch.ones(3, 3, 4, dtype=torch.float64))
    assert not set(addresses(other)) & set(kept), "another shape"
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "usable", lambda *tensors: False)
        plain = cache_of(2)
        append(plain, 0, torch.ones(3, 3, 4))
    assert not set(addresses(plain)) & set(kept), "another layout"
    next_one, third = cache_of(2), cache_of(2)
    tokens = torch.randn(20, 3, 4)
    for cache in (next_one, third):
        append(cache, 1, tokens)
        assert torch.equal(held_by(cache, 1, 0)[0], tokens)
    assert addresses(next_one) == kept and not set(addresses(third)) & set(kept)
    next_one.close()
    other.close()
    assert [kept.size for kept in _cache._kept.values()] == [2 * page_bytes], "the latest, which takes twice as much"
    assert closed(4) and len(_cache._kept) == 1, "four pages are too much"


@needs_kernels
@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_the_step_in_one_call_is_the_step_of_the_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    new_folder(tmp_path / "m", architecture=architecture, width=64, heads=4, kv_heads=2)  # type: ignore[arg-type]
    policy = load(tmp_path / "m")
    prompts, states = random_sequences(5, 40, 17), []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(_decoding, "can_decode", lambda body, cache: False)
        else:
            assert _decoding.can_decode(policy.body, policy.body.new_cache(3, 64))  # type: ignore[arg-type]
        cache = policy.body.new_cache(3, 64)
        found = [policy.body.extend(cache, [2, 0, 1], pack(prompts))]
        for step in range(20):
            found.append(policy.body.extend(cache, [2, 0, 1], pack(random_sequences(1, 1, 1, seed=step))))
        states.append(torch.stack(found))
    torch.testing.assert_close(*states, atol=1e-5, rtol=0)


@needs_kernels
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", ["qwen3", "qwen2", "llama"])
def test_a_step_of_a_sequence_is_the_same_to_the_bit_whatever_is_beside_it_and_on_any_threads(
    tmp_path: Path, architecture: str, dtype: str
) -> None:
    """Widths that are no multiples of what is computed together, biases (Qwen2), rows shared and apart.

    Prompts are read by one thread: without wide vectors their products are torch's, which round by the threads.
    """
    sizes = {"width": 72, "heads": 3, "kv_heads": 1, "head_dim": 24, "mlp_width": 100}
    new_folder(tmp_path / "m", architecture=architecture, **sizes)  # type: ignore[arg-type]
    policy = load(tmp_path / "m", dtype=dtype)
    prompts, threads, seen = random_sequences(*range(3, 43)), torch.get_num_threads(), []
    try:
        for count, members in ((1, range(40)), (3, range(40)), (2, [7, 20]), (3, [20, 1, 7])):
            torch.set_num_threads(1)
            cache = policy.body.new_cache(40, 64)
            policy.body.extend(cache, list(members), pack([prompts[i] for i in members]))
            torch.set_num_threads(count)
            assert _decoding.can_decode(policy.body, cache)  # type: ignore[arg-type]
            tokens = [torch.tensor([i + 1]) for i in members]
            steps = [policy.body.extend(cache, list(members), pack(tokens)) for _ in range(18)]
            seen.append(torch.stack(steps)[:, [list(members).index(i) for i in (7, 20)]])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, seen[0]) for one in seen[1:])


@needs_kernels
def test_weights_that_change_while_a_cache_lives_are_laid_out_anew(tmp_path: Path) -> None:
    policy = load(new_folder(tmp_path / "m"))
    prompts, (token,) = random_sequences(9, 12), random_sequences(1)
    cache = policy.body.new_cache(2, 64)

    def step() -> torch.Tensor:
        for slot in (0, 1):
            cache.release(slot)
        policy.body.extend(cache, [0, 1], pack(prompts))
        return policy.body.extend(cache, [0, 1], pack([token, token]))

    first, laid_out = step(), cache.decoding
    assert laid_out is not None and torch.equal(step(), first) and cache.decoding is laid_out
    with torch.no_grad():
        policy.body.model.layers[-1].mlp.down_proj.weight *= 1.5  # type: ignore[union-attr,index]
    changed = step()
    assert cache.decoding is not laid_out and not torch.equal(changed, first)
    fresh = policy.body.new_cache(2, 64)
    policy.body.extend(fresh, [0, 1], pack(prompts))
    assert torch.equal(policy.body.extend(fresh, [0, 1], pack([token, token])), changed)


@needs_kernels
@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions that are left out are those of x86-64")
@pytest.mark.parametrize("left_out", [["-mno-amx-bf16", "-mno-amx-tile"], ["-march=x86-64-v2"]])
def test_a_step_is_the_same_on_processors_that_can_do_less(tmp_path: Path, left_out: list[str]) -> None:
    """Without the matrix unit, and without wide vectors: the source has a branch for either."""
    new_folder(tmp_path / "m", architecture="qwen2", width=72, heads=3, kv_heads=1, head_dim=24, mlp_width=100)
    script = f"""
import sys, torch
from posttrain.kernels import _build, status
_build.FLAGS = (*_build.FLAGS, '-O1', *{left_out!r})  # -O1 halves the time of the compiler
from posttrain.policies import _decoding
from tests.policies.made_models import load, pack, random_sequences
from pathlib import Path
assert status() == "compiled", status()
can_decode = _decoding.can_decode
for dtype, near in (("float32", 1e-5), ("bfloat16", 0.05)):
    states = []
    for plain in (False, True):
        policy, prompts = load(Path({str(tmp_path / "m")!r}), dtype=dtype), random_sequences(*range(5, 45))
        _decoding.can_decode = (lambda *_: False) if plain else can_decode
        cache, slots = policy.body.new_cache(40, 64), list(range(40))
        policy.body.extend(cache, slots, pack(prompts))
        found = [policy.body.extend(cache, slots, pack(random_sequences(*[1] * 40, seed=s))) for s in range(5)]
        assert (cache.decoding is None) == plain
        states.append(torch.stack(found).float())
    assert states[0].std() > 0.1
    torch.testing.assert_close(*states, atol=near, rtol=0)
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
