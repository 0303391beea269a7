"""The gradient of a large vocabulary in half precision is summed in float32 and rounded once."""

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from posttrain.kernels import memory
from posttrain.kernels.products import has_matrix_unit, has_wide_vectors
from posttrain.policies import vocabulary
from posttrain.policies._memory import recomputed
from posttrain.policies.vocabulary import Total, embedded, logits, rounded_once
from posttrain.training.masters import Masters

CHUNKS = 40


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "LARGE", 1)


def tied(weight_VD: Tensor, chunks: int = CHUNKS) -> tuple[Tensor, Callable[[], None]]:
    """[V, D] in float64 what the gradient of a tied matrix is, and what computes it: many chunks with like gradients,
    whose sum in bfloat16 stops growing.
    """
    generator = torch.Generator().manual_seed(0)
    ids_T = torch.randint(0, len(weight_VD), (8,), generator=generator)
    hidden_TD = (1.0 + torch.rand(8, weight_VD.shape[1], generator=generator)).to(weight_VD.dtype)
    of_logits_TV = (1.0 + torch.rand(8, len(weight_VD), generator=generator)).to(weight_VD.dtype)
    of_rows_TD = torch.ones(8, weight_VD.shape[1], dtype=weight_VD.dtype)

    def backward() -> None:
        rows_TD = embedded(ids_T, weight_VD)
        made = [logits(hidden_TD, weight_VD) for _ in range(chunks)]
        torch.autograd.backward([*made, rows_TD], [of_logits_TV] * chunks + [of_rows_TD])

    exact_VD = chunks * (of_logits_TV.double().t() @ hidden_TD.double())
    return exact_VD.index_add(0, ids_T, of_rows_TD.double()), backward


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_is_the_exact_sum_rounded(dtype: torch.dtype) -> None:
    weight_VD = torch.zeros(12, 5, dtype=dtype, requires_grad=True)
    exact_VD, backward = tied(weight_VD)
    with rounded_once():
        backward()
        assert weight_VD.grad is None
    assert weight_VD.grad is not None and weight_VD.grad.dtype == dtype
    once = ((weight_VD.grad.double() - exact_VD) / exact_VD).abs().max()
    assert once <= 1.1 * torch.finfo(dtype).eps
    weight_VD.grad = None
    backward()
    assert weight_VD.grad is not None
    each = ((weight_VD.grad.double() - exact_VD) / exact_VD).abs().max()
    assert each > 2 * once  # torch rounds every sum


@pytest.mark.usefixtures("large")
def test_a_master_gets_what_the_weight_would_have_got() -> None:
    """Rounded to bfloat16, then added in float32; also where there was a sum before."""
    weight_VD = torch.zeros(12, 5, dtype=torch.bfloat16, requires_grad=True)
    _, backward = tied(weight_VD)
    with rounded_once():
        backward()
    assert weight_VD.grad is not None
    rounded_VD = weight_VD.grad.float()
    for before in (None, torch.full((12, 5), 1e-3)):
        weight_VD.grad = None
        total = Total(None if before is None else before.clone(), torch.float32)
        with rounded_once() as sums:
            sums.collect(weight_VD, total)
            backward()
        assert total.sum_VD is not None and weight_VD.grad is None
        assert torch.equal(total.sum_VD, rounded_VD if before is None else before + rounded_VD)


@pytest.mark.usefixtures("large")
def test_the_outermost_gives_and_an_error_leaves_nothing_open() -> None:
    weight_VD = torch.zeros(12, 5, dtype=torch.bfloat16, requires_grad=True)
    _, backward = tied(weight_VD)
    with rounded_once() as outer:
        with rounded_once() as inner:
            backward()
        assert inner is outer and weight_VD.grad is None
    assert weight_VD.grad is not None
    weight_VD.grad = None
    with pytest.raises(ZeroDivisionError), rounded_once():
        backward()
        raise ZeroDivisionError
    assert weight_VD.grad is None
    backward()
    assert weight_VD.grad is not None


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("dtype", "kept"), [(torch.float32, True), (torch.bfloat16, True), (torch.bfloat16, False)])
def test_the_memory_of_a_sum_is_written_over_by_the_next(dtype: torch.dtype, kept: bool) -> None:
    """Micro-batches have the gradients that they have apart, and one sum beside the total."""
    weight_VD = torch.nn.Parameter(torch.zeros(12, 5, dtype=dtype))
    _, backward = tied(weight_VD)
    masters = Masters({"embedding": weight_VD}, kept=kept)
    total = masters.parameters["embedding"]

    def micro_batches(number: int) -> list[Tensor]:
        after = []
        for _ in range(number):
            with masters.collecting({"embedding"}):
                backward()
            assert total.grad is not None
            after.append(total.grad.clone())
        return after

    apart = micro_batches(3)
    assert masters.spare is None
    total.grad = None
    with masters.reusing():
        together = micro_batches(2)
        spare = masters.spare or []
        assert len(spare) == 1
        places = [one.fill_(float("nan")).data_ptr() for one in spare]  # nothing of it is read
        together += micro_batches(1)
        if has_wide_vectors():  # torch's own products take no room
            assert [one.data_ptr() for one in masters.spare or []] == places
    assert masters.spare is None
    assert all(map(torch.equal, together, apart))


@pytest.mark.skipif(not has_wide_vectors() or has_matrix_unit(), reason="torch makes logits")
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_written_over_the_last_ones_when_nobody_refers_to_them(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: list[memory.Block] = []
    monkeypatch.setattr(memory, "LARGE", 1)
    monkeypatch.setattr(memory, "Block", lambda size, make=memory.Block: blocks.append(make(size)) or blocks[-1])
    generator = torch.Generator().manual_seed(0)
    weight_VD = torch.randn(12, 6, generator=generator).to(dtype)
    hidden_TD = torch.randn(5, 6, generator=generator).to(dtype)
    expected = logits(hidden_TD, weight_VD)
    masters = Masters({"embedding": torch.nn.Parameter(weight_VD)}, kept=True)
    with masters.reusing():
        made = logits(hidden_TD, weight_VD)
        place = made.data_ptr()
        held, other = made[2:].fill_(float("nan")), logits(hidden_TD, weight_VD)
        assert other.data_ptr() != place and torch.equal(other, expected)
        del made
        assert logits(hidden_TD, weight_VD).data_ptr() != place and held.isnan().all()
        del held
        again = logits(hidden_TD[:4], weight_VD)  # fewer fit as well
        assert again.data_ptr() == place and torch.equal(again, expected[:4])
        longer = logits(hidden_TD.repeat(9, 1), weight_VD)
        assert longer.data_ptr() != place and torch.equal(longer[-5:], expected)
        assert torch.equal(again, expected[:4])
        block = weakref.ref(blocks[-1])
        blocks.clear()
        del longer
        assert block() is not None
    assert block() is None


@pytest.mark.skipif(not has_wide_vectors(), reason="there are no own products")
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_single_product_is_added_at_once_with_the_bits_of_a_sum_apart(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that the embedding reads too, some of them twice, are rounded after it has added to them."""

    def after(slices: int) -> Tensor:
        weight_VD = torch.nn.Parameter(torch.zeros(12, 5, dtype=dtype))
        masters = Masters({"embedding": weight_VD}, kept=True)
        _, backward = tied(weight_VD, chunks=1)
        for _ in range(slices):
            with masters.collecting({"embedding"}):
                backward()
        found = masters.parameters["embedding"].grad
        assert found is not None and found.dtype == torch.float32
        return found

    at_once = [after(slices) for slices in (1, 2, 5)]
    asked = []
    monkeypatch.setattr(vocabulary._Slice, "is_whole", lambda *given: bool(asked.append(given)))
    assert all(map(torch.equal, at_once, [after(slices) for slices in (1, 2, 5)]))
    assert len(asked) == 8


@pytest.mark.skipif(not has_wide_vectors(), reason="there are no own products")
@pytest.mark.usefixtures("large")
def test_of_several_products_none_is_added_at_once() -> None:
    """Nor of one that is computed a second time, since others follow."""
    weight_VD, total = torch.nn.Parameter(torch.zeros(12, 5)), Total(None, torch.float32)
    hidden_TD, grad_TV = torch.ones(3, 5), torch.ones(3, 12)

    def run(hidden_TD: Tensor) -> tuple[Tensor, ...]:
        return (logits(hidden_TD, weight_VD),)

    for several in (
        lambda: [logits(hidden_TD, weight_VD) for _ in range(2)],
        lambda: list(recomputed(run, hidden_TD.requires_grad_())),
    ):
        with rounded_once() as sums:
            sums.collect(weight_VD, total)
            for made in several():
                made.backward(grad_TV)  # type: ignore[no-untyped-call]
                assert total.sum_VD is None
            sums.give(weight_VD)
        assert total.sum_VD is not None
        total.sum_VD = None
