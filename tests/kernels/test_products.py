"""Products of matrices by the kernel: against float64, for any sizes and strides, and independent of what is beside."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from posttrain.kernels import layers, products
from tests.kernels import FOUND, needs_kernels

pytestmark = [
    needs_kernels,
    pytest.mark.skipif(
        FOUND.library is not None and not layers.has_wide_vectors(), reason="no AVX-512 here: torch multiplies"
    ),
]
SIZES = (
    *((1, 1, 1), (7, 5, 3), (48, 64, 64), (100, 130, 77)),
    (1600, 70, 641),  # more rows than are copied at once, and a sum in two parts
    (50, 1100, 1300),  # more columns than are
)
"""Rows, columns and terms."""


def matrix(rows: int, columns: int, dtype: torch.dtype, across: bool, seed: int) -> Tensor:
    """Random, with its rows or its columns contiguous."""
    draw = torch.Generator().manual_seed(seed)
    made = torch.randn(*((columns, rows) if across else (rows, columns)), generator=draw).to(dtype)
    return made.t() if across else made


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


@pytest.fixture
def threads() -> Iterator[None]:
    """Any number, and afterwards as many as before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_it_equals_float64_and_adds_to_what_is_there(dtype: torch.dtype) -> None:
    for rows, columns, terms in SIZES:
        for of_a, of_b in itertools.product((False, True), repeat=2):
            a, b = matrix(rows, terms, dtype, of_a, 0), matrix(terms, columns, dtype, of_b, 1)
            exact = a.double() @ b.double()
            found = products.product(a, b)
            assert found.dtype == torch.float32 and found.shape == (rows, columns)
            assert (found - exact).abs().max() < 1e-5 * (1 + terms)
            there = torch.full((rows, columns), 2.0)
            assert products.product(a, b, added_to=there) is there
            assert (there - exact - 2).abs().max() < 1e-5 * (1 + terms)


def test_sums_that_are_rounded_first(dtype: torch.dtype) -> None:
    """Also where a sum has more terms than are added before it is stored."""
    for terms in (100, products.deepest(dtype), products.deepest(dtype) + 1):
        a, b = matrix(50, terms, dtype, True, 0), matrix(terms, 70, dtype, False, 1)
        whole = products.product(a, b).to(dtype).float()
        assert torch.equal(products.product(a, b, rounded=True), whole)
        there = torch.full((50, 70), 0.1)
        assert torch.equal(products.product(a, b, added_to=there.clone(), rounded=True), there + whole)


def test_in_their_own_type_it_is_the_same_rounded_once(dtype: torch.dtype) -> None:
    for rows, columns, terms in (*SIZES, (50, 70, products.deepest(dtype) + 1), (3, 4, 0)):
        for of_a, of_b in itertools.product((False, True), repeat=2):
            a, b = matrix(rows, terms, dtype, of_a, 0), matrix(terms, columns, dtype, of_b, 1)
            found = products.matmul(a, b)
            assert found.dtype == dtype and torch.equal(found, products.product(a, b).to(dtype))


def test_by_hand() -> None:
    a, b = torch.tensor([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]]), torch.tensor([[4.0], [8.0]])
    assert products.product(a, b).tolist() == [[20.0], [-8.0], [16.0]]


@pytest.mark.usefixtures("threads")
def test_threads_and_other_rows_change_no_bit(dtype: torch.dtype) -> None:
    for across in (False, True):
        a, b = matrix(100, 700, dtype, across, 0), matrix(700, 130, dtype, across, 1)
        found = products.product(a, b)
        assert torch.equal(products.product(a[3:50], b), found[3:50])
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            assert torch.equal(products.product(a, b), found)


def test_what_lies_beyond_a_matrix_is_not_read_into_it(dtype: torch.dtype) -> None:
    """An odd number of terms ends in half a pair: its other half must not be the next number of memory."""
    around = torch.full((40, 80), torch.nan, dtype=dtype)
    for across in (False, True):
        a, b = around.clone(), around.clone()
        a, b = (a.t(), b.t()) if across else (a, b)
        a[:9, :7], b[:7, :5] = 1.0, 2.0
        assert products.product(a[:9, :7], b[:7, :5]).tolist() == [[14.0] * 5] * 9


def test_without_numbers() -> None:
    assert products.product(torch.ones(3, 0), torch.ones(0, 2)).tolist() == [[0.0, 0.0]] * 3
    there = torch.ones(3, 2)
    assert products.product(torch.ones(3, 0), torch.ones(0, 2), added_to=there) is there and bool((there == 1).all())
    assert products.product(torch.ones(0, 4), torch.ones(4, 2)).shape == (0, 2)


def test_what_is_covered() -> None:
    ones = torch.ones(2, 2)
    assert products.covered(ones, ones) and products.covered(ones.bfloat16())
    assert not products.covered(ones, ones.bfloat16()) and not products.covered(ones.double())


def test_the_gradient_of_a_large_matrix_is_that_of_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = matrix(50, 70, torch.float32, False, 0), matrix(50, 90, torch.float32, False, 1)
    small = layers.outer(x, y)
    assert torch.equal(small, x.t() @ y)
    monkeypatch.setattr(layers, "LARGE_MATRIX", 0)
    assert (layers.outer(x, y) - small).abs().max() < 1e-4
