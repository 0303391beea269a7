"""Products of two matrices that are used once, on a CPU with wide vectors (AVX-512).

Gradients of weights, logits and their gradients: what `posttrain.kernels.layers` does not take a few rows at a time.
torch leaves float32 to MKL, which has no use for the wider vectors of AMD's processors: there this takes half as long.
"""

from functools import cache
from typing import Final

import torch
from torch import Tensor, nn

from posttrain.kernels._build import built
from posttrain.kernels._cpu import call
from posttrain.kernels.memory import LARGE, take_large_pages

__all__ = ["covered", "has_wide_vectors", "master_of", "product"]


DEEP: Final = 640
"""Terms of a sum that is stored once, as in the source."""


@cache
def has_wide_vectors() -> bool:
    """Whether the processor has the registers for the tiles of the products (AVX-512): without, torch is faster."""
    library = built().library
    return library is not None and bool(library.has_wide_vectors())


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
    if rounded and terms > DEEP:
        whole = product(a_MK, b_KN).to(a_MK.dtype)
        return whole.float() if added_to is None else added_to.add_(whole)
    if rows * columns * terms == 0:
        return torch.zeros(rows, columns) if added_to is None else added_to
    found = added_to if added_to is not None else into
    if found is None:
        found = torch.empty(rows, columns)
        if found.nbytes >= LARGE:  # mapped for this tensor alone
            take_large_pages(found.data_ptr(), found.nbytes)
    assert found.is_contiguous() and found.dtype == torch.float32
    (a_by_row, a_by_column), (b_by_row, b_by_column) = a_MK.stride(), b_KN.stride()
    given = (a_MK, a_by_row, a_by_column, b_KN, b_by_row, b_by_column)
    call("gemm", a_MK.dtype, rows, columns, terms, *given, found, int(added_to is not None), int(rounded))
    return found


def master_of(weight: Tensor) -> nn.Parameter | None:
    """Whose ``grad`` sums the gradients of a weight in half precision, in float32, while a learner collects them
    (`posttrain.training.masters`).
    """
    master: nn.Parameter | None = getattr(weight, "master", None)
    return master
