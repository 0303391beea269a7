"""Matrices of a layer in the layout of the kernels in `posttrain.kernels.layers`, made anew for each use.

They are laid out in memory that a thread keeps from one use to the next: new memory would come from the system page by
page, since what a layer frees is taken by the activations of the next one.
"""

import threading
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Final

import torch
from torch import Tensor

from posttrain.kernels._build import built
from posttrain.kernels._cpu import call

__all__ = ["COLUMNS", "below", "beside", "free_panels", "lays_out_pairs"]

COLUMNS: Final = 64
"""Outputs in a panel of a matrix, as in the source."""
Stack = Sequence[Tensor]
"""Matrices that are laid out as one."""


@cache
def lays_out_pairs() -> bool:
    """Whether the processor multiplies bfloat16 in pairs (AVX-512 BF16): then panels are of that type."""
    library = built().library
    return library is not None and bool(library.lays_out_pairs())


def beside(*stacks: Stack) -> list[Tensor]:
    """Of each stack the matrices [outputs, inputs], which have the same inputs, concatenated by outputs: the columns of
    a matrix [I, O] in panels, float32 [panels, I, `COLUMNS`]. In pairs they are bfloat16 [panels, I / 2, `COLUMNS`, 2].

    They are valid until the thread calls this, or `below`, again.
    """
    return _laid_out([_Matrix.of([matrix.t() for matrix in stack], by_outputs=True) for stack in stacks])


def below(*stacks: Stack) -> list[Tensor]:
    """The same for the gradients of the inputs from the gradients of all outputs: they are the inputs here."""
    return _laid_out([_Matrix.of(stack, by_outputs=False) for stack in stacks])


def free_panels() -> None:
    """Free what this thread keeps."""
    _kept.panels = None


class _Kept(threading.local):
    panels: Tensor | None = None


_kept: Final = _Kept()


class _Matrix:
    """Parts [I, O] of a matrix with where each begins, and what its panels take."""

    def __init__(self, parts: Stack, places: Sequence[tuple[int, int]], inputs: int, outputs: int) -> None:
        self.parts, self.places, self.inputs = parts, places, inputs
        self.pairs = parts[0].dtype == torch.bfloat16 and lays_out_pairs()
        self.dtype = torch.bfloat16 if self.pairs else torch.float32
        self.shape = -(-outputs // COLUMNS), *((-(-inputs // 2), COLUMNS, 2) if self.pairs else (inputs, COLUMNS))
        self.numbers = self.shape[0] * COLUMNS * (inputs + (inputs % 2 if self.pairs else 0))
        self.padded = bool(outputs % COLUMNS or (self.pairs and inputs % 2))

    @classmethod
    def of(cls, parts: Stack, *, by_outputs: bool) -> "_Matrix":
        """Parts that are concatenated along one axis."""
        *first, end = accumulate((part.shape[by_outputs] for part in parts), initial=0)
        across = parts[0].shape[not by_outputs]
        if by_outputs:
            return cls(parts, [(0, begin) for begin in first], across, end)
        return cls(parts, [(begin, 0) for begin in first], end, across)

    def entries(self, place: int) -> list[int]:
        """The numbers of ``Entry`` in the source, of each part."""
        found: list[int] = []
        for part, where in zip(self.parts, self.places, strict=True):
            half = int(part.dtype == torch.bfloat16)
            found += (half, place, part.data_ptr(), *part.stride(), *part.shape, self.inputs, *where)
        return found


def _laid_out(matrices: Sequence[_Matrix]) -> list[Tensor]:
    """The panels of matrices of one type."""
    dtype = matrices[0].dtype
    assert all(matrix.dtype == dtype for matrix in matrices), "the kernels take a layer's panels in one type"
    *places, numbers = accumulate((matrix.numbers for matrix in matrices), initial=0)
    panels = _memory(numbers, dtype)
    found = [
        panels[place : place + matrix.numbers].view(matrix.shape)
        for matrix, place in zip(matrices, places, strict=True)
    ]
    for matrix, own in zip(matrices, found, strict=True):
        if matrix.padded:
            own.zero_()
    entries = [number for matrix, place in zip(matrices, places, strict=True) for number in matrix.entries(place)]
    call("lay_out", dtype, sum(len(matrix.parts) for matrix in matrices), torch.tensor(entries), panels)
    return found


def _memory(numbers: int, dtype: torch.dtype) -> Tensor:
    size = numbers * dtype.itemsize
    if _kept.panels is None or len(_kept.panels) < size:
        _kept.panels = None  # before more is asked for
        _kept.panels = torch.empty(size, dtype=torch.uint8)
    return _kept.panels[:size].view(dtype)
