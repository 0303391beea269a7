"""Log-probability and entropy from logits, beside their definition in float64."""

import itertools

import pytest
import torch
from torch import Tensor

from posttrain import kernels
from tests.kernels import needs_kernels

pytestmark = needs_kernels

WIDTHS = (1, 2, 15, 16, 17, 63, 64, 65, 261, 1023, 1024, 1025, 5000)


def definition(logits: Tensor, token: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logp = (logits / temperature).log_softmax(-1)
    return logp.gather(1, token[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def case(width: int, dtype: torch.dtype, *, rows: int = 37, spread: float = 4.0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, tokens, and random credit of both results."""
    rng = torch.Generator().manual_seed(width)
    logits = (spread * torch.randn(rows, width, generator=rng)).to(dtype)
    return logits, torch.randint(width, (rows,), generator=rng), torch.randn(2, rows, generator=rng)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 0.7, 3.0])
@pytest.mark.parametrize("width", WIDTHS)
def test_values_and_gradients(width: int, temperature: float, dtype: torch.dtype) -> None:
    logits, token, credit = case(width, dtype)
    exact = logits.double().requires_grad_()
    truth = definition(exact, token, temperature)
    for entropy in (False, True):
        given = logits.clone().requires_grad_()
        made = kernels.token_signals(given * 1, token, temperature=temperature, entropy=entropy)
        assert (made[1] is not None) == entropy
        results = [
            (value, true, weight) for value, true, weight in zip(made, truth, credit, strict=True) if value is not None
        ]
        for value, true, _ in results:
            torch.testing.assert_close(value.double(), true, atol=3e-6, rtol=1e-6)
        sum((value * weight).sum() for value, _, weight in results).backward()  # type: ignore[union-attr]
        [wanted] = torch.autograd.grad(
            sum((true * weight.double()).sum() for _, true, weight in results), exact, retain_graph=True
        )
        assert given.grad is not None
        tolerance = 5e-6 if dtype == torch.float32 else 2**-8
        torch.testing.assert_close(given.grad.double(), wanted, atol=tolerance, rtol=tolerance)


def test_credit_of_the_entropy_alone() -> None:
    logits, token, credit = case(261, torch.float32)
    exact, given = logits.double().requires_grad_(), logits.clone().requires_grad_()
    _, entropy = kernels.token_signals(given * 1, token, temperature=1.0, entropy=True)
    assert entropy is not None
    (entropy * credit[1]).sum().backward()
    (definition(exact, token, 1.0)[1] * credit[1]).sum().backward()
    assert given.grad is not None and exact.grad is not None
    torch.testing.assert_close(given.grad.double(), exact.grad, atol=5e-6, rtol=5e-6)


def test_a_large_vocabulary_of_equal_logits_sums_exactly_enough() -> None:
    width = 151_936
    logits, token = torch.zeros(2, width), torch.tensor([0, width - 1])
    logp, entropy = kernels.token_signals(logits, token, temperature=1.0, entropy=True)
    expected = torch.full((2,), width, dtype=torch.float64).log()
    torch.testing.assert_close(-logp.double(), expected, atol=2e-6, rtol=0)
    assert entropy is not None
    torch.testing.assert_close(entropy.double(), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("spread", [1e-3, 50.0, 1e4])
def test_extreme_logits(spread: float) -> None:
    logits, token, _ = case(261, torch.float32, spread=spread)
    logp, entropy = kernels.token_signals(logits, token, temperature=1.0, entropy=True)
    true = definition(logits.double(), token, 1.0)
    torch.testing.assert_close(logp.double(), true[0], atol=3e-6, rtol=1e-6)
    assert entropy is not None
    torch.testing.assert_close(entropy.double(), true[1], atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tokens_that_cannot_be_and_rows_that_are_broken(dtype: torch.dtype) -> None:
    """By the kernel, and by the plain operations."""
    logits, token, _ = case(40, dtype, rows=5)
    logits[0, 3:] = -torch.inf
    token[0] = 5
    logits[1, 2] = torch.nan
    logits[2] = -torch.inf
    logits[3, 1] = torch.inf
    logp, entropy = kernels.token_signals(logits, token, temperature=1.0, entropy=True)
    assert entropy is not None
    assert logp[0] == -torch.inf
    left = logits[0, :3].double().log_softmax(0)
    torch.testing.assert_close(entropy[0].double(), -(left.exp() * left).sum(), atol=3e-6, rtol=1e-6)
    assert logp[1:4].isnan().all() and entropy[1:4].isnan().all()
    assert logp[4].isfinite()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_to_the_bit_in_any_batch(dtype: torch.dtype) -> None:
    logits, token, credit = case(261, dtype)

    def made(rows: slice) -> list[Tensor]:
        given = logits[rows].clone().requires_grad_()
        logp, entropy = kernels.token_signals(given * 1, token[rows], temperature=0.7, entropy=True)
        assert entropy is not None
        ((logp * credit[0, rows]).sum() + (entropy * credit[1, rows]).sum()).backward()
        assert given.grad is not None
        return [logp, entropy, given.grad]

    before = torch.get_num_threads()
    try:
        for threads, rows in itertools.product((1, 2, 3), (slice(0, 1), slice(5, 20), slice(36, 37))):
            torch.set_num_threads(threads)
            for part, whole in zip(made(rows), made(slice(None)), strict=True):
                assert torch.equal(part, whole[rows])
    finally:
        torch.set_num_threads(before)


def test_tokens_beyond_the_vocabulary_are_refused() -> None:
    for wrong in (-1, 40):
        with pytest.raises(IndexError, match=rf"tokens 0 to 39 have logits; got {min(wrong, 3)} to {max(wrong, 3)}"):
            kernels.token_signals(torch.zeros(2, 40), torch.tensor([3, wrong]), temperature=1.0, entropy=False)


def test_no_tokens() -> None:
    logp, entropy = kernels.token_signals(
        torch.zeros(0, 40), torch.zeros(0, dtype=torch.int64), temperature=1.0, entropy=True
    )
    assert entropy is not None
    assert logp.shape == entropy.shape == (0,)


def test_a_graph_is_gone_through_once() -> None:
    logits = torch.zeros(3, 40, requires_grad=True)
    logp, _ = kernels.token_signals(logits * 1, torch.zeros(3, dtype=torch.int64), temperature=1.0, entropy=False)
    logp.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once only"):
        logp.sum().backward()
