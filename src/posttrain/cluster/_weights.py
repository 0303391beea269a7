"""The weights of a policy as one run of bytes: digest, and a buffer that other processes of the machine read.

The buffer is memory without a name: readers open it through the folder of the process that made it, ``/proc/PID/fd``.
So nothing is left behind, however that process ends. It is made once and stays warm: of 500 MB, a copy into memory that
was used before takes a tenth of the first one.

Digests are against mistakes (an older version, a buffer that was overwritten), not against attacks: XXH3 with 128 bits,
which reads memory faster than it is copied.
"""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor
from torch.autograd.graph import increment_version

from posttrain.errors import RunFailed
from posttrain.policies import Policy


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a policy's weights, as its readers know it."""

    name: str
    """Of the policy, in the cluster."""
    number: int
    """`Policy.version`."""
    digest: str
    bytes: int


def tensors_of(policy: Policy) -> Iterator[Tensor]:
    """Parameters and buffers in a fixed order; one that is tied to another comes once."""
    for _, parameter in policy.named_parameters():
        yield parameter.detach()
    for _, buffer in policy.named_buffers():
        yield buffer


def _bytes_of(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def size_of(policy: Policy) -> int:
    """Bytes of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(policy))


def digest_of(policy: Policy) -> str:
    """XXH3 of all bytes."""
    digest = xxhash.xxh3_128()
    for tensor in tensors_of(policy):
        digest.update(_bytes_of(tensor))
    return digest.hexdigest()


PIECE = 1 << 18
"""Bytes that are copied and then digested, while they are in the processor's cache."""


def _copy(into: Any, source: Any, digest: "xxhash.xxh3_128") -> None:
    """Copy bytes, and add them to a digest as they arrived."""
    for start in range(0, len(source), PIECE):
        piece = into[start : start + PIECE]
        piece[:] = source[start : start + PIECE]
        digest.update(piece)


def write(policy: Policy, into: Any) -> str:
    """Copy all bytes into an array of `size_of` bytes. Returns their digest."""
    start, digest = 0, xxhash.xxh3_128()
    for tensor in tensors_of(policy):
        own = _bytes_of(tensor)
        _copy(into[start : start + len(own)], own, digest)
        start += len(own)
    return digest.hexdigest()


@torch.no_grad()
def read(policy: Policy, source: Any, version: Version) -> None:
    """Give a policy the weights of a version. Raises `RunFailed` where they are not those of its digest."""
    start, digest = 0, xxhash.xxh3_128()
    for tensor in tensors_of(policy):
        size = tensor.numel() * tensor.element_size()
        given = source[start : start + size]
        if tensor.device.type == "cpu" and tensor.is_contiguous():
            _copy(_bytes_of(tensor), given, digest)  # in the tensor's own memory
            increment_version(tensor)  # by which copies in other forms know that they are old
        else:
            tensor.copy_(torch.from_numpy(np.array(given)).view(tensor.dtype).reshape(tensor.shape))
            digest.update(_bytes_of(tensor))
        start += size
    policy.version = version.number
    found = digest.hexdigest()
    if start != version.bytes or found != version.digest:
        raise RunFailed(
            f"version {version.number} of {version.name} arrived with the digest {found}, and was sent with "
            f"{version.digest}"
        )


def check(source: Any, version: Version) -> None:
    """Raise `RunFailed` where bytes are not those of a version's digest."""
    found = xxhash.xxh3_128(source).hexdigest()
    if found != version.digest:
        raise RunFailed(
            f"version {version.number} of {version.name} arrived with the digest {found}, and was sent with "
            f"{version.digest}"
        )


class Buffer:
    """Memory of this process that others on the machine can read; it grows when more is asked for."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._map: mmap.mmap | None = None
        self.array: Any = np.zeros(0, np.uint8)

    def room(self, size: int) -> Any:
        """[size] bytes to write to."""
        if size > len(self.array):
            self.close()
            self._descriptor = os.memfd_create("posttrain-weights", os.MFD_CLOEXEC)
            os.ftruncate(self._descriptor, size)
            self._map = mmap.mmap(self._descriptor, size)
            self.array = np.frombuffer(self._map, np.uint8)
        return self.array[:size]

    @property
    def path(self) -> str:
        """Where others of this machine, of the same user, open it."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def close(self) -> None:
        """Give the memory back once the last reader has."""
        self.array = np.zeros(0, np.uint8)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._map = -1, None


class Mapped:
    """Buffers of another process, which stay open between versions."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, Any]] = {}

    def array(self, name: str, path: str, size: int) -> Any:
        """The first bytes of the buffer at a path, which is that of a model."""
        number = os.stat(path).st_ino  # the path of one that was closed may be that of another one now
        before, array = self._open.get(name, (-1, np.zeros(0, np.uint8)))
        if before != number:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                whole = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
            finally:
                os.close(descriptor)
            array = np.frombuffer(whole, np.uint8)
            self._open[name] = number, array
        return array[:size]

    def forget(self, name: str) -> None:
        """Close the buffer of a model."""
        self._open.pop(name, None)
