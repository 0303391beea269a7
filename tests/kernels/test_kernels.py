"""The compiled kernels against the plain operations in float64: values, gradients, independence of what is beside."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from posttrain import kernels
from posttrain.kernels import PAGE, _build

FOUND = _build.built()
pytestmark = pytest.mark.skipif(  # never for kernels that do not compile: that must fail
    FOUND.library is None and "does not compile" not in FOUND.why_not, reason=f"no kernels here: {FOUND.why_not}"
)
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
    return kernels.turn(heads, module, rotation_of(len(x), 4)), [x, module.weight]


def by_bare_turn(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    return kernels.turn(x.unflatten(1, (-1, 8)), nn.Identity(), rotation_of(len(x), 4)), [x]


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
    assert torch.equal(kernels.turn(x[:, None], nn.Identity(), quarter), torch.tensor([[[-4.0, 3.0]]]))
    assert torch.allclose(kernels.gated(torch.tensor([[0.0, 100.0]]), x), torch.tensor([[0.0, 400.0]]))


def test_a_row_is_the_same_to_the_bit_whatever_is_beside_it_and_on_any_number_of_threads() -> None:
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


@pytest.mark.slow
def test_without_a_compiler_or_switched_off_the_reason_is_said(tmp_path: Path) -> None:
    script = "from posttrain import kernels; print(kernels.status())"

    def said(**environment: str) -> str:
        variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), **environment}
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.strip()

    assert said() == "compiled"
    assert said(POSTTRAIN_KERNELS="off") == "plain: switched off by POSTTRAIN_KERNELS=off"
    (tmp_path / "empty").mkdir()
    assert "no C++ compiler" in said(PATH=str(tmp_path / "empty"))
    broken = tmp_path / "broken" / "c++"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    broken.chmod(0o755)
    assert "no such luck" in said(PATH=f"{broken.parent}:{os.environ['PATH']}")
    assert len(list((tmp_path / "cache").rglob("*.so"))) == 1 and not list((tmp_path / "cache").rglob("tmp*"))
