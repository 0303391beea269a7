"""Layers that go through kernels a few rows at a time, against their modules in float64."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from posttrain.kernels import layers, panels
from posttrain.kernels._build import built
from posttrain.models import LoRA
from posttrain.policies._cache import free_kept
from posttrain.policies._modules import Layer
from posttrain.policies._shape import Rope, Shape
from posttrain.policies.lora import LoRALinear, add_adapters
from tests.kernels import FOUND, needs_kernels

pytestmark = needs_kernels
wide = pytest.mark.skipif(  # kernels that do not compile are no reason: `case_of` fails then
    FOUND.library is not None and not layers.has_wide_vectors(), reason="no AVX-512 here: the modules compute"
)
BASE = Shape(
    model_type="qwen3",
    vocabulary_size=8,
    width=96,
    layers=1,
    heads=4,
    kv_heads=2,
    head_dim=24,
    mlp_width=200,
    norm_eps=1e-5,
    context=512,
    rope=Rope(type="default", theta=1e4, settings={}),
    tied=True,
    qkv_bias=False,
    o_bias=False,
    mlp_bias=False,
    qk_norm=True,
)
SHAPES = {
    "qwen3": BASE,
    "panels that are full": dataclasses.replace(BASE, width=64, head_dim=32, mlp_width=128),
    "biases": dataclasses.replace(BASE, qkv_bias=True, o_bias=True, mlp_bias=True),
    "adapted": dataclasses.replace(BASE, o_bias=True),
    "bare": dataclasses.replace(BASE, qk_norm=False, kv_heads=4, width=40, head_dim=10, mlp_width=56),
}


def layer_of(name: str) -> Layer:
    """A layer, with adapters on three of its matrices where it is "adapted": then all is trained, weights included."""
    layer = Layer(SHAPES[name], 0)
    if name == "adapted":
        add_adapters(layer, LoRA(rank=3, alpha=6.0, targets=("v_proj", "o_proj", "up_proj")))
        layer.requires_grad_(True)
    return layer


KEPT = {"before_forward": [-5], "after_forward": [-3, -2]}
"""Which argument of a kernel is the place for what only a backward pass needs."""


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leaves their number as it was; and a matrix unit, where there is one, is no reason not to test bfloat16."""
    monkeypatch.setattr(layers, "has_matrix_unit", lambda: False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@dataclass
class Case:
    """A layer with random weights, its inputs, and the gradients of its outputs."""

    name: str
    layer: Layer
    x: Tensor
    delta: Tensor | None
    grads: tuple[Tensor, Tensor]
    rotation: tuple[Tensor, Tensor]

    def to(self, dtype: torch.dtype) -> "Case":
        layer = layer_of(self.name).to(dtype)
        layer.load_state_dict(self.layer.state_dict())
        grads = self.grads[0].to(dtype), self.grads[1].to(dtype)
        delta = None if self.delta is None else self.delta.to(dtype)
        return Case(self.name, layer, self.x.to(dtype), delta, grads, self.rotation)

    @property
    def is_covered(self) -> bool:
        return layers.covered(self.x, self.layer.linears, self.layer.norms)

    def computed(self, rows: slice = slice(None)) -> list[Tensor]:
        """Outputs, then the gradients of the inputs and of every weight."""
        inputs = [x[rows].clone().requires_grad_() for x in (self.x, self.delta) if x is not None]
        rotation = self.rotation[0][rows], self.rotation[1][rows]
        outputs = self.layer(inputs[0], inputs[1] if len(inputs) > 1 else None, rotation, mixed)
        grads = torch.autograd.grad(outputs, [*inputs, *self.layer.parameters()], [g[rows] for g in self.grads])
        return [*(output.detach() for output in outputs), *grads]


def mixed(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """In place of attention: something of each row by itself that all three have a part in."""
    groups = query.shape[1] // key.shape[1]
    return (query * key.repeat_interleave(groups, 1) + value.repeat_interleave(groups, 1)).flatten(1)


def case_of(name: str, rows: int = 130, *, first: bool = False, dtype: torch.dtype = torch.float32) -> Case:
    """All numbers are those of `dtype`; the kernels do all but float64."""
    shape, draw = SHAPES[name], torch.Generator().manual_seed(rows)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw)

    layer = layer_of(name)
    for parameter in layer.parameters():
        parameter.data = random(*parameter.shape) * (0.1 if parameter.dim() > 1 else 1.0)
    angle = random(rows, shape.head_dim // 2)
    grads = random(rows, shape.width), random(rows, shape.width)
    delta = None if first else random(rows, shape.width)
    case = Case(name, layer, random(rows, shape.width), delta, grads, (angle.cos(), angle.sin())).to(dtype)
    assert case.is_covered == (dtype != torch.float64), "or the modules would be compared with themselves"
    return case


def plain(case: Case, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The same by the modules."""
    with monkeypatch.context() as patch:
        patch.setattr(layers, "covered", lambda *given: False)
        return case.computed()


@wide
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("rows", [1, 48, 130])
@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients_are_as_near_to_float64_as_those_of_the_modules(
    name: str, rows: int, first: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "adapted" and dtype == torch.bfloat16 and layers.lays_out_pairs():
        pytest.skip("the modules compute adapters where products round what they are given")
    case = case_of(name, rows, first=first, dtype=dtype)
    exact = case.to(torch.float64)
    assert not exact.is_covered
    least = {torch.float32: 3e-7, torch.bfloat16: 3e-3}[dtype]
    for ours, by_modules, right in zip(case.computed(), plain(case, monkeypatch), exact.computed(), strict=True):
        assert ours.dtype == dtype and ours.shape == right.shape
        off, allowed = ((x.double() - right).norm() / right.norm() for x in (ours, by_modules))
        assert off < 3 * max(allowed, least), f"off by {off:.2g}, the modules by {allowed:.2g}"


def test_the_modules_are_right_by_finite_differences() -> None:
    """What the kernels are compared with, in float64."""
    case = case_of("biases", 3, dtype=torch.float64)
    weights = list(case.layer.parameters())

    def function(x: Tensor, delta: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        names = [name for name, _ in case.layer.named_parameters()]
        given = (x, delta, case.rotation, mixed)
        weights = dict(zip(names, parameters, strict=True))
        outputs: tuple[Tensor, Tensor] = torch.func.functional_call(case.layer, weights, given)
        return outputs

    assert case.delta is not None
    inputs = [case.x.requires_grad_(), case.delta.requires_grad_(), *weights]
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)


@wide
@pytest.mark.parametrize("name", SHAPES)
def test_a_row_is_the_same_to_the_bit_whatever_the_other_rows_and_on_any_number_of_threads(name: str) -> None:
    case = case_of(name, 300)
    torch.set_num_threads(1)
    whole = case.computed()
    for rows in (slice(0, 7), slice(45, 100), slice(299, 300)):
        for part, all_rows in zip(case.computed(rows)[:4], whole, strict=False):  # outputs, and gradients of the inputs
            assert torch.equal(part, all_rows[rows])
    torch.set_num_threads(3)
    norms = [i for i, (weight, _) in enumerate(case.layer.named_parameters(), 4) if "norm" in weight]
    again = case.computed()
    assert all(torch.equal(again[i], whole[i]) for i in (*range(4), *norms))


@wide
def test_without_gradients_nothing_is_kept_and_values_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of("qwen3")
    kept: list[bool] = []
    call = layers.call

    def noted(name: str, dtype: torch.dtype, *given: int | float | Tensor | None) -> None:
        if name in KEPT:
            kept.extend(given[place] is not None for place in KEPT[name])
        call(name, dtype, *given)

    monkeypatch.setattr(layers, "call", noted)
    with torch.no_grad():
        outputs = case.layer(case.x, case.delta, case.rotation, mixed)
    assert all(torch.equal(a, b) for a, b in zip(outputs, case.computed(), strict=False))
    assert kept == [False, False, False, True, True, True]


@wide
def test_frozen_weights_get_no_gradient_and_change_no_other() -> None:
    case = case_of("biases")
    whole = case.computed()
    case.layer.requires_grad_(False)
    inputs = [x.clone().requires_grad_() for x in (case.x, case.delta) if x is not None]
    outputs = case.layer(*inputs, case.rotation, mixed)
    grads = torch.autograd.grad(outputs, inputs, case.grads)
    assert all(torch.equal(a, b) for a, b in zip(grads, whole[2:4], strict=True))
    assert all(parameter.grad is None for parameter in case.layer.parameters())


@wide
@pytest.mark.parametrize("used", [0, 1])
def test_an_output_that_the_loss_does_not_read_counts_as_zero(used: int) -> None:
    case = case_of("qwen3")
    x = case.x.clone().requires_grad_()
    other = torch.zeros_like(case.grads[1 - used])
    with_zeros = torch.autograd.grad(
        case.layer(x, case.delta, case.rotation, mixed),
        x,
        (case.grads[0], other) if used == 0 else (other, case.grads[1]),
    )
    alone = torch.autograd.grad(case.layer(x, case.delta, case.rotation, mixed)[used], x, case.grads[used])
    assert torch.equal(with_zeros[0], alone[0])


@wide
def test_a_graph_is_gone_through_once() -> None:
    """Gradients take the place of what is gated: to go on from there would give wrong numbers without a word."""
    case = case_of("qwen3")
    x = case.x.clone().requires_grad_()
    total = sum(output.sum() for output in case.layer(x, case.delta, case.rotation, mixed))
    assert isinstance(total, Tensor)
    total.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="once only"):
        total.backward()  # type: ignore[no-untyped-call]


@wide
def test_not_finite_numbers_are_not_hidden() -> None:
    case = case_of("qwen3")
    case.x[5, 3] = torch.nan
    results = case.computed()
    for output in results[:2]:
        assert output[5].isnan().all() and output[:5].isfinite().all() and output[6:].isfinite().all()
    assert all(grad.isnan().any() for grad in results[2:])


def replaced(modules: Sequence[nn.Module], place: int, by: nn.Module) -> list[nn.Module]:
    return [by if i == place else module for i, module in enumerate(modules)]


@wide
def test_what_is_not_covered_is_left_to_the_modules() -> None:
    case = case_of("qwen3")
    linears, norms = case.layer.linears, case.layer.norms
    assert layers.covered(case.x, linears, norms)
    adapted = LoRALinear(linears[4], "gate", 2, 4.0)
    assert layers.covered(case.x, replaced(linears, 4, adapted), norms)
    assert not layers.covered(case.x, linears, replaced(norms, 0, nn.LayerNorm(96))), "other norms"
    assert not layers.covered(case.x, replaced(linears, 0, nn.Linear(96, 96).bfloat16()), norms), "several types"
    assert not layers.covered(case.x.double(), linears, norms)
    assert not layers.covered(case.x.to("meta"), linears, norms)


@wide
def test_a_matrix_unit_does_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = case_of("qwen3"), case_of("qwen3", dtype=torch.bfloat16)
    monkeypatch.setattr(layers, "has_matrix_unit", lambda: True)
    assert [case.is_covered for case in cases] == [True, False]


def _hold(found: torch.Tensor, matrix: torch.Tensor) -> None:
    """Panels have these columns, and zeros after the last."""
    if found.dim() == 4:  # in pairs
        assert found.dtype == torch.bfloat16
        found = found.transpose(2, 3).flatten(1, 2)[:, : len(matrix)].float()
    columns = found.transpose(0, 1).flatten(1)
    assert torch.equal(columns[:, : matrix.shape[1]], matrix) and not columns[:, matrix.shape[1] :].any()


def test_panels_of_a_layer_are_in_memory_that_is_kept_until_it_is_freed() -> None:
    """Several stacks at once, in the same place each time, whatever was there; larger ones get a new place."""
    draw = torch.Generator().manual_seed(4)
    for dtype in (torch.float32, torch.bfloat16):
        small, odd, more = (torch.randn(*size, generator=draw).to(dtype) for size in ((70, 33), (5, 7), (130, 33)))
        panels.free_panels()
        first = panels.beside([more, small], [odd], [small])
        for found, matrix in zip(first, (torch.cat([more, small]), odd, small), strict=True):
            _hold(found, matrix.float().t())
        place = first[0].data_ptr()
        first[0].fill_(7.0)
        again = panels.below([odd], [more, small])
        for found, matrix in zip(again, (odd, torch.cat([more, small])), strict=True):
            _hold(found, matrix.float())
        assert again[0].data_ptr() == place
        large = panels.beside([torch.ones(256, 512, dtype=dtype)])[0]
        _hold(large, torch.ones(512, 256))
        free_kept()
        assert panels._kept.panels is None
        _hold(panels.beside([small])[0], small.float().t())


def test_products_by_hand() -> None:
    """Panels of parts beside and below one another, and sums of outer products, where sizes are no multiple of any."""
    draw = torch.Generator().manual_seed(3)
    for dtype, (inputs, *outputs) in itertools.product(
        (torch.float32, torch.bfloat16), ((5, 3), (33, 70, 20), (64, 64, 64, 128))
    ):
        parts = [torch.randn(n, inputs, generator=draw).to(dtype) for n in outputs]
        whole = torch.cat(parts).float()
        _hold(panels.beside(parts)[0], whole.t())
        _hold(panels.below(parts)[0], whole)
    for rows, left, right in ((1, 1, 1), (97, 7, 70), (200, 130, 64)):
        x, y = (torch.randn(rows, n, generator=draw).bfloat16() for n in (left, right))
        assert torch.allclose(layers.outer(x, y).double(), x.double().t() @ y.double(), rtol=2**-8, atol=1e-2)


@wide
def test_blocks_leave_two_threads_with_nearly_the_same_rows() -> None:
    library = built().library
    assert library is not None
    for rows in (1, 36, 37, 60, 256, 480, 512, 700, 730, 4096):
        size = int(library.rows_of_block(rows))
        blocks = -(-rows // size)
        longest = -(-blocks // 2) * size  # of what the thread has that takes the first block
        assert size % 6 == 0 and 36 <= size <= 108
        assert longest <= max(size, 1.1 * rows / 2 + 6), f"{rows} rows in blocks of {size}"
