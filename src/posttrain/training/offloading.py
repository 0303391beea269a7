"""Moments and masters in files, so that they take main memory only while weights are updated.

The tensors are maps of files without a name in a folder of the user's choice, and end with the process. After an update
their pages are given back: the system keeps what it has room for, and writes the others to the disk.
"""

import mmap
import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from posttrain.errors import UserError


class Files:
    """Tensors of one optimizer that were moved to files."""

    def __init__(self, folder: str) -> None:
        """Raises `UserError` for a folder that is not there."""
        if not Path(folder).is_dir():
            raise UserError(f"learner.offload={folder} is no folder; give one on a disk with room for moments")
        self._folder = folder
        self._maps: dict[int, mmap.mmap] = {}
        """By the address of the tensor."""

    @property
    def bytes(self) -> int:
        """Of all of them."""
        return sum(len(found) for found in self._maps.values())

    def moved(self, tensor: Tensor) -> Tensor:
        """The same numbers in a file; what is there, or is a single number, stays as it is."""
        if tensor.data_ptr() in self._maps or tensor.numel() < 2 or tensor.device.type != "cpu":
            return tensor
        with tempfile.TemporaryFile(dir=self._folder) as file:
            try:
                file.truncate(tensor.nbytes)
                if hasattr(os, "posix_fallocate"):  # a full disk would end the process when a page is written
                    os.posix_fallocate(file.fileno(), 0, tensor.nbytes)
            except OSError as error:
                raise UserError(f"learner.offload={self._folder} has no room for moments: {error.strerror}") from None
            there = mmap.mmap(file.fileno(), tensor.nbytes)
        found = torch.frombuffer(there, dtype=tensor.dtype).reshape(tensor.shape)
        found.copy_(tensor)
        self._maps[found.data_ptr()] = there
        return found

    def rest(self, kept: "list[Tensor]") -> None:
        """Give the memory back of all of these, and forget the others."""
        alive = {tensor.data_ptr() for tensor in kept}
        self._maps = {place: found for place, found in self._maps.items() if place in alive}
        for found in self._maps.values():
            found.madvise(mmap.MADV_DONTNEED)
