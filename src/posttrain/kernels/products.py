"""Products of two matrices that are used once, on a CPU with wide vectors (AVX-512).

Gradients of weights, logits and their gradients: what `posttrain.kernels.layers` does not take a few rows at a time.
torch leaves float32 to MKL, which has no use for the wider vectors of AMD's processors: there this takes half as long.
"""

from functools import cache
from typing import Final

import torch
from torch import Tensor, nn

from posttrain.kernels._build import built
from posttrain.kernels._cpu import TYPES, call
from posttrain.kernels.memory import LARGE, take_large_pages

__all__ = ["covered", "goes_straight", "has_matrix_unit", "has_wide_vectors", "is_large", "master_of", "matmul"]
__all__ += ["product", "room_of"]


@cache
def has_wide_vectors() -> bool:
    """Whether the processor has the registers for the tiles of the products (AVX-512): without, torch is faster."""
    library = built().library
    return library is not None and bool(library.has_wide_vectors())


@cache
def has_matrix_unit() -> bool:
    """Whether the processor has instructions for products in bfloat16 (AMX), which torch uses."""
    library = built().library
    return library is not None and bool(library.multiplies_bfloat16())


@cache
def deepest(dtype: torch.dtype) -> int:
    """Terms of the longest sum that is stored once."""
    return int(getattr(built().library, f"deepest_{TYPES[dtype]}")())


def covered(*matrices: Tensor) -> bool:
    """Whether `product` takes these."""
    if not has_wide_vectors():
        return False
    first = matrices[0].dtype
    return first in (torch.float32, torch.bfloat16) and all(
        matrix.device.type == "cpu" and matrix.dtype == first for matrix in matrices
    )


def product(
    a_MK: Tensor,
    b_KN: Tensor,
    *,
    added_to: Tensor | None = None,
    into: Tensor | None = None,
    rounded: bool = False,
) -> Tensor:
    """[M, N] ``a @ b`` in float32, of `covered` matrices with any strides; added to a contiguous one if it is given,
    and before that `rounded` to their type if it is to be. Without one it is written `into` memory that is given: new
    memory comes from the system page by page, which takes as long as the product where it is large.

    A row depends on no other row of ``a``, and no number on the number of threads.
    """
    (rows, terms), columns = a_MK.shape, b_KN.shape[1]
    if rounded and terms > deepest(a_MK.dtype):
        whole = product(a_MK, b_KN, into=into if added_to is None else None)
        if added_to is not None:
            return added_to.add_(whole.to(a_MK.dtype))
        return whole if a_MK.dtype == torch.float32 else whole.copy_(whole.to(a_MK.dtype))
    if rows * columns * terms == 0:
        return torch.zeros(rows, columns) if added_to is None else added_to
    found = added_to if added_to is not None else into
    if found is None:
        found = _new(rows, columns, torch.float32)
    assert found.is_contiguous() and found.dtype == torch.float32
    half = rounded and a_MK.dtype != torch.float32
    (a_by_row, a_by_column), (b_by_row, b_by_column) = a_MK.stride(), b_KN.stride()
    given = (a_MK, a_by_row, a_by_column, b_KN, b_by_row, b_by_column)
    call("gemm", a_MK.dtype, rows, columns, terms, *given, found, int(added_to is not None), int(half))
    return found


def matmul(a_MK: Tensor, b_KN: Tensor, *, into: Tensor | None = None) -> Tensor:
    """[M, N] ``a @ b`` in their type, rounded once, of `covered` matrices with any strides; written `into` memory that
    is given, if sums are short enough to be stored once.
    """
    (rows, terms), columns = a_MK.shape, b_KN.shape[1]
    if terms > deepest(a_MK.dtype) or rows * columns * terms == 0:
        return product(a_MK, b_KN).to(a_MK.dtype)
    found = into if into is not None else _new(rows, columns, a_MK.dtype)
    assert found.shape == (rows, columns) and found.is_contiguous() and found.dtype == a_MK.dtype
    call("gemm_rounded", a_MK.dtype, rows, columns, terms, a_MK, *a_MK.stride(), b_KN, *b_KN.stride(), found)
    return found


def _new(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """A matrix to be written whole."""
    made = torch.empty(rows, columns, dtype=dtype)
    if made.nbytes >= LARGE:  # mapped for this tensor alone
        take_large_pages(made.data_ptr(), made.nbytes)
    return made


LARGE_MATRIX: Final = 1 << 18
"""Numbers of a matrix from which its gradient in float32 is not left to torch."""


def is_large(weight: Tensor) -> bool:
    """Whether it is a matrix on a CPU, in float32, whose gradient is written by a kernel."""
    matrix = weight.dim() == 2 and weight.dtype == torch.float32 and weight.device.type == "cpu"
    return matrix and weight.numel() >= LARGE_MATRIX


def goes_straight(weight: Tensor) -> bool:
    """Whether kernels may add the gradients of a weight in float32 to its ``grad`` as they make them."""
    return is_large(weight) and has_wide_vectors()


def master_of(weight: Tensor) -> nn.Parameter | None:
    """Whose ``grad`` sums the gradients of a weight, in float32, while a learner collects them: a large one itself, or
    the master of one in half precision (`posttrain.training.masters`).
    """
    master: nn.Parameter | None = getattr(weight, "master", None)
    return master


def room_of(parameter: Tensor) -> Tensor | None:
    """Memory for the first gradient of a parameter, where there is some."""
    room: Tensor | None = getattr(parameter, "room", None)
    return room
