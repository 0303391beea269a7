"""The compiled kernels against the plain operations in float64: values, gradients, independence of what is beside."""

import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from posttrain import kernels
from posttrain.engines._random import uniform
from posttrain.engines._truncation import Rules, choose
from posttrain.kernels import PAGE
from tests.kernels import needs_kernels

pytestmark = needs_kernels
EPS = {torch.float32: 3e-6, torch.bfloat16: 2.0**-7}


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def norm_of(width: int, dtype: torch.dtype) -> nn.RMSNorm:
    module = nn.RMSNorm(width, 1e-6, dtype=dtype)
    module.weight.data = (1 + 0.3 * random(width, seed=9)).to(dtype)
    return module


def rotation_of(rows: int, half: int) -> tuple[Tensor, Tensor]:
    angle = random(512, half, seed=8).float()[:rows]
    return angle.cos(), angle.sin()


def by_norm(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    module = norm_of(x.shape[1], dtype)
    return kernels.norm(x, module), [x, module.weight]


def by_add_norm(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    module, delta = norm_of(x.shape[1], dtype), random(*x.shape, seed=2).to(dtype).requires_grad_()
    total, y = kernels.add_norm(x, delta, module)
    return torch.stack((total, y)), [x, delta, module.weight]


def by_turn(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    module, heads = norm_of(8, dtype), x.unflatten(1, (-1, 8))
    return kernels.rotate(heads, module, rotation_of(len(x), 4)), [x, module.weight]


def by_bare_turn(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    return kernels.rotate(x.unflatten(1, (-1, 8)), nn.Identity(), rotation_of(len(x), 4)), [x]


def by_gate(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    up = random(*x.shape, seed=3).to(dtype).requires_grad_()
    return kernels.gated(x, up), [x, up]


ALL = pytest.mark.parametrize("compute", [by_norm, by_add_norm, by_turn, by_bare_turn, by_gate])
Compute = Callable[[Tensor, torch.dtype], tuple[Tensor, list[Tensor]]]


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 63, 130])
def test_values_and_gradients_are_those_of_the_plain_operations_in_float64(
    compute: Compute, dtype: torch.dtype, rows: int
) -> None:
    results = []
    for kind in (dtype, torch.float64):
        x = random(rows, 40, seed=1, dtype=dtype).to(kind).requires_grad_()
        assert kernels.usable(x) == (kind == dtype)
        y, inputs = compute(x, kind)
        y.backward(random(*y.shape, seed=4, dtype=dtype).to(kind))  # type: ignore[no-untyped-call]
        results.append([y.detach(), *(i.grad for i in inputs if i.grad is not None)])
        assert len(results[-1]) == 1 + len(inputs)
    for ours, plain in zip(*results, strict=True):
        assert ours.dtype == dtype
        size = plain.abs().mean() * math.sqrt(rows if plain.dim() == 1 else 1)
        worst = (ours.double() - plain).abs().max() / (size + plain.abs().max())
        assert worst < EPS[dtype], f"off by {worst:.2g} of the size"


def test_the_plain_operations_are_right_by_finite_differences() -> None:
    """What the kernels are compared with, in float64."""
    for compute in (by_norm, by_add_norm, by_turn, by_gate):

        def function(x: Tensor, compute: Compute = compute) -> Tensor:
            return compute(x, torch.float64)[0]

        assert torch.autograd.gradcheck(function, random(3, 16, seed=1).requires_grad_())


def test_by_hand() -> None:
    module = nn.RMSNorm(2, 0.0)
    x = torch.tensor([[3.0, 4.0]])  # rms: sqrt(12.5)
    assert torch.allclose(kernels.norm(x, module), x / math.sqrt(12.5))
    quarter = (torch.tensor([[0.0]]), torch.tensor([[1.0]]))  # (a, b) to (-b, a)
    assert torch.equal(kernels.rotate(x[:, None], nn.Identity(), quarter), torch.tensor([[[-4.0, 3.0]]]))
    assert torch.allclose(kernels.gated(torch.tensor([[0.0, 100.0]]), x), torch.tensor([[0.0, 400.0]]))


def test_a_row_is_the_same_to_the_bit_whatever_the_other_rows_and_on_any_number_of_threads() -> None:
    x = random(300, 48, seed=5, dtype=torch.float32)
    threads = torch.get_num_threads()
    try:
        for compute in (by_norm, by_turn, by_bare_turn, by_gate):
            torch.set_num_threads(1)
            whole = compute(x, torch.float32)[0]
            assert torch.equal(compute(x[:7], torch.float32)[0], whole[:7])
            torch.set_num_threads(3)
            assert torch.equal(compute(x, torch.float32)[0], whole)
        gradients = []
        for count in (1, 3):
            torch.set_num_threads(count)
            given = x.clone().requires_grad_()
            y, (_, weight) = by_norm(given, torch.float32)
            y.sum().backward()  # type: ignore[no-untyped-call]
            gradients.append((given.grad, weight.grad))
        assert all(torch.equal(one, three) for one, three in zip(*gradients, strict=True))
    finally:
        torch.set_num_threads(threads)


def test_not_finite_numbers_are_not_hidden() -> None:
    x = torch.ones(2, 16)
    x[1, 3] = math.nan
    for compute in (by_norm, by_turn, by_gate):
        y, _ = compute(x, torch.float32)
        assert y[0].isfinite().all() and y[1].isnan().any()
    assert kernels.gated(torch.full((1, 16), -1e30), torch.ones(1, 16)).abs().max() < 1e-6
    overflow = torch.full((1, 16), 3e38, dtype=torch.bfloat16)
    assert kernels.gated(overflow, overflow).isinf().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "key_heads", "width"), [(4, 2, 64), (3, 3, 8), (6, 1, 24), (2, 2, 80)])
def test_decoding_attends_to_what_the_sequence_holds_and_keeps_the_new_token(
    dtype: torch.dtype, heads: int, key_heads: int, width: int
) -> None:
    lengths = [1, 15, 16, 17, 70]
    batch, pages = len(lengths), 40
    query = random(batch + 3, heads, width, seed=1, dtype=dtype)
    key, value = (random(batch + 3, key_heads, width, seed=s, dtype=dtype) for s in (2, 3))
    keys = random(pages, key_heads, width, PAGE, seed=4, dtype=dtype)
    values = random(pages, PAGE, key_heads, width, seed=5, dtype=dtype)
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(6)).int()
    table = order[: batch * 5].view(batch, 5).contiguous()
    held = [(keys[t.long()].clone(), values[t.long()].clone()) for t in table]
    out = torch.full((batch + 3, heads * width), 7.0, dtype=dtype)
    kernels.decode_attention(query, key, value, keys, values, table, torch.tensor(lengths), out)
    assert out[batch:].eq(7.0).all(), "rows of the padding are left alone"
    for b, length in enumerate(lengths):
        k = held[b][0].permute(0, 3, 1, 2).flatten(0, 1)[:length].double()
        v = held[b][1].flatten(0, 1)[:length].double()
        k, v = (torch.cat((old, new[b : b + 1].double())) for old, new in ((k, key), (v, value)))
        for head in range(heads):
            own = head * key_heads // heads
            share = (k[:, own] @ query[b, head].double() / math.sqrt(width)).softmax(0)
            expected = share @ v[:, own]
            assert (out[b].view(heads, width)[head].double() - expected).abs().max() < 5 * EPS[dtype]
        page, place = table[b, length // PAGE].long(), length % PAGE
        assert torch.equal(keys[page, :, :, place], key[b]) and torch.equal(values[page, place], value[b])


STARTS, AFTER = (0, 33, 38, 38, 102, 119, 120, 210), (-1, 0, 0, -1, 3, 0, -1)
"""Rows of seven sequences, one of them empty; three come after the first, one after the fourth."""


def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """[R, H * d] of `STARTS` and `AFTER`, by the definition."""
    rows = [list(range(begin, end)) for begin, end in itertools.pairwise(STARTS)]
    groups, parts = query.shape[1] // key.shape[1], []
    for own, before in zip(rows, AFTER, strict=True):
        seen = [*(rows[before] if before >= 0 else []), *own]
        q = query[own].transpose(0, 1) / math.sqrt(query.shape[2])
        k, v = (x[seen].transpose(0, 1).repeat_interleave(groups, 0) for x in (key, value))
        future = torch.ones(len(own), len(seen)).triu(len(seen) - len(own) + 1).bool()
        shares = (q @ k.transpose(1, 2)).masked_fill(future, -torch.inf).softmax(-1)
        parts.append((shares @ v).transpose(0, 1).flatten(1))
    return torch.cat(parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "key_heads", "width"), [(4, 2, 64), (3, 3, 8), (6, 1, 24), (2, 2, 80)])
def test_packed_attention_and_its_gradients_are_those_of_the_definition_in_float64(
    dtype: torch.dtype, heads: int, key_heads: int, width: int
) -> None:
    rows, padding = STARTS[-1], 6
    layout = kernels.PackedLayout.of(STARTS, AFTER)
    given = [random(rows + padding, h, width, seed=h + s, dtype=dtype) for s, h in enumerate((heads, *[key_heads] * 2))]
    ours, plain = ([x.to(kind, copy=True).requires_grad_() for x in given] for kind in (dtype, torch.float64))
    y, expected = kernels.packed_attention(*ours, layout), attended(*plain)
    assert y.dtype == dtype and not y[rows:].any()
    assert (y[:rows].double() - expected).abs().max() < 2 * EPS[dtype]
    up = random(*y.shape, seed=7, dtype=dtype)
    y.backward(up)  # type: ignore[no-untyped-call]
    expected.backward(up[:rows].double())  # type: ignore[no-untyped-call]
    for x, by_definition in zip(ours, plain, strict=True):
        assert x.grad is not None and by_definition.grad is not None and not x.grad[rows:].any()
        worst = (x.grad.double() - by_definition.grad).abs().max() / by_definition.grad.abs().max()
        assert worst < 2 * EPS[dtype], f"off by {worst:.2g} of the size"


@pytest.mark.parametrize(
    ("after", "clean"),
    [  # what of y, and of the gradients of query, key and value, must not hear of the first, or of the second
        ((-1, -1, -1), [slice(47, None)] * 4),
        ((-1, 0, 0), [*[slice(0, 20)] * 2, *[slice(47, None)] * 2]),
    ],
    ids=["beside it", "sibling"],
)
def test_what_is_not_finite_stays_in_its_sequence(after: tuple[int, ...], clean: list[slice]) -> None:
    """A thread's memory holds what the sequence before left there, also beyond the end of a shorter one."""
    sibling = after[1] == 0
    starts, bad = ((0, 20, 47, 52), slice(20, 47)) if sibling else ((0, 47, 57, 66), slice(47))
    layout, rows, before = kernels.PackedLayout.of(starts, after), starts[-1], torch.get_num_threads()

    def made(broken: bool) -> list[Tensor]:
        query, key, value = (random(rows, h, 24, seed=h + s, dtype=torch.float32) for s, h in enumerate((4, 2, 2)))
        if broken:
            for x in (query, key, value):
                x[bad] = torch.nan
        given = [x.requires_grad_() for x in (query, key, value)]
        y = kernels.packed_attention(query, key, value, layout)
        y.backward(random(*y.shape, seed=7, dtype=torch.float32))  # type: ignore[no-untyped-call]
        return [y, *(x.grad for x in given if x.grad is not None)]

    try:
        torch.set_num_threads(1)
        for whole, other, part in zip(made(broken=False), made(broken=True), clean, strict=True):
            assert other[bad].isnan().any()
            assert torch.equal(other[part], whole[part])
            assert torch.equal(other[starts[2] :], whole[starts[2] :])
    finally:
        torch.set_num_threads(before)


def test_the_definition_of_attention_is_right_by_finite_differences_and_by_hand() -> None:
    inputs = [random(STARTS[-1], 1, 2, seed=s).requires_grad_() for s in range(3)]
    part = torch.arange(33, 38)  # what comes after the first sequence, and so reaches its keys too

    def function(*given: Tensor) -> Tensor:
        return attended(*given)[part]

    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    # One token attends to itself; two tokens with scores 0 and ln 3 have shares 1/4 and 3/4.
    one = torch.ones(2, 1, 16)
    key = torch.stack((torch.zeros(1, 16), torch.full((1, 16), math.log(3.0) / 4)))
    value = torch.stack((torch.full((1, 16), 8.0), torch.full((1, 16), 4.0)))
    y = kernels.packed_attention(one, key, value, kernels.PackedLayout.of((0, 2), (-1,)))
    assert torch.allclose(y, torch.tensor([[8.0], [5.0]]).expand(2, 16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "key_heads", "width"), [(4, 2, 24), (1, 1, 6), (1, 1, 16), (3, 1, 80), (2, 2, 64)])
def test_a_token_attends_the_same_to_the_bit_in_a_sequence_after_a_shared_one_and_after_a_cache(
    heads: int, key_heads: int, width: int, dtype: torch.dtype
) -> None:
    """Heads alone and in pairs, widths of whole vectors, of a part of one and of both: each has its own loop."""
    prompt, own = 37, 21
    query, key, value = (random(prompt + own, h, width, seed=h, dtype=dtype) for h in (heads, key_heads, key_heads))
    whole = kernels.packed_attention(query, key, value, kernels.PackedLayout.of((0, prompt + own), (-1,)))
    # The prompt once, and then twice what comes after it, with a sequence of others in between.
    rows = [*range(prompt), *range(prompt, prompt + own), *range(11), *range(prompt, prompt + own)]
    starts = (0, prompt, prompt + own, prompt + own + 11, prompt + 2 * own + 11)
    layout = kernels.PackedLayout.of(starts, (-1, 0, -1, 0))
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            shared = kernels.packed_attention(query[rows], key[rows], value[rows], layout)
            assert torch.equal(shared[: prompt + own], whole)
            assert torch.equal(shared[starts[3] :], whole[prompt:])
    finally:
        torch.set_num_threads(threads)
    pages = -(-(prompt + own) // PAGE)
    keys = torch.zeros(pages, key_heads, width, PAGE, dtype=dtype)
    values = torch.zeros(pages, PAGE, key_heads, width, dtype=dtype)
    table = torch.arange(pages, dtype=torch.int32)[None]
    out = torch.zeros(1, heads * width, dtype=dtype)
    for place in range(prompt + own):
        new = (x[place : place + 1] for x in (query, key, value))
        kernels.decode_attention(*new, keys, values, table, torch.tensor([place]), out)
        assert torch.equal(out[0], whole[place])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_choice_of_a_token_is_that_of_the_plain_operations(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, vocabulary = 400, 61
    logits = (3 * random(rows, vocabulary, seed=1)).to(dtype)
    logits[5, 3:50] = -math.inf
    logits[6] = 0.0  # all alike
    logits[7, 60], logits[8], logits[9, 0] = math.nan, -math.inf, math.inf
    draw = torch.rand(rows, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    draw[:4] = torch.tensor([0.0, 1 - 2.0**-53, 0.5, 0.25])
    draw[6] = 0.5
    temperature = torch.tensor([0.0, 0.1, 1.0, 1.7], dtype=torch.float64).repeat(rows // 4)
    none = torch.zeros(rows, dtype=torch.int64)
    rules = Rules(temperature_B=temperature, top_k_B=none, top_p_B=none + 1.0, min_p_B=none.double())
    token, logp, entropy = choose(logits, rules, draw)
    monkeypatch.setattr(kernels, "usable", lambda *tensors: False)
    plain_token, plain_logp, plain_entropy = choose(logits, rules, draw)
    sound = torch.ones(rows, dtype=torch.bool)
    sound[7:10] = False
    assert torch.equal(token[sound], plain_token[sound]) and int(token[6]) == vocabulary // 2
    assert len(set(token.tolist())) > vocabulary // 2
    torch.testing.assert_close(logp[sound], plain_logp[sound], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(entropy[sound], plain_entropy[sound], rtol=1e-12, atol=1e-12)
    assert all(numbers[7:10].isnan().all() for numbers in (logp, plain_logp, entropy, plain_entropy))


def test_draws_are_those_of_the_definition_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    words = np.array([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1], np.uint64)
    key_B, counter_B = (np.concatenate([w, rng.integers(0, 2**64, 500, np.uint64)]) for w in (words, words[::-1]))
    drawn_B = kernels.uniform(torch.from_numpy(key_B), torch.from_numpy(counter_B))
    assert drawn_B is not None and np.array_equal(drawn_B.numpy(), uniform(key_B, counter_B))


EACH_IN_A_FORK = """
import json, os, sys, torch
for environment in json.loads(sys.argv[1]):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    os.environ.update(environment)
    from posttrain.kernels import _build
    _build.FLAGS = (*_build.FLAGS, '-O1')
    from posttrain import kernels
    print(json.dumps(kernels.status()), flush=True)
    os._exit(0)
"""
"""What kernels report where these variables are set, of processes in which torch is imported."""


@pytest.mark.slow
def test_without_a_compiler_or_switched_off_the_reason_is_reported(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "c++"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    broken.chmod(0o755)
    (tmp_path / "empty").mkdir()
    each = [
        {},
        {"POSTTRAIN_KERNELS": "off"},
        {"PATH": str(tmp_path / "empty")},
        {"PATH": f"{broken.parent}:{os.environ['PATH']}"},
    ]
    variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", EACH_IN_A_FORK, json.dumps(each)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    compiled, off, without, with_broken = map(json.loads, done.stdout.splitlines())
    assert compiled == "compiled"
    assert off == "plain: switched off by POSTTRAIN_KERNELS=off"
    assert "no C++ compiler" in without and "no such luck" in with_broken
    assert len(list((tmp_path / "cache").rglob("*.so"))) == 1 and not list((tmp_path / "cache").rglob("tmp*"))
