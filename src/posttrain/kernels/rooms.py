"""Tensors in a block of memory that is lent to one user after the other (`posttrain.kernels.memory.Block`)."""

from collections.abc import Sequence
from math import prod
from typing import Final

import torch
from torch import Tensor

from posttrain.kernels.memory import Block, shared_block

LINE: Final = 64
"""Bytes of a line of the cache; a tensor begins with one."""


class Room:
    """Memory that tensors are taken from, one beside the other. It is given back when nobody refers to any of them."""

    def __init__(self, lent: memoryview) -> None:
        self._lent = lent
        self._used = 0

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor with whatever numbers are there."""
        begin = self._used
        self._used += on_lines(prod(shape) * dtype.itemsize)
        return torch.frombuffer(self._lent, dtype=dtype, count=prod(shape), offset=begin).view(*shape)


def on_lines(size: int) -> int:
    """Bytes that a tensor of some bytes takes in a room."""
    return -(-size // LINE) * LINE


def room_in(block: Block | None, size: int) -> Room | None:
    """A room of at least that size in a block, if it is large enough and nobody has it."""
    lent = block.lend() if block is not None and block.size >= size else None
    return None if lent is None else Room(lent)


def shared_room(size: int) -> Room | None:
    """The same in the block of the process, if one is held."""
    return room_in(shared_block(), size)
