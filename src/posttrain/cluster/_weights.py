"""The weights of a policy as one run of bytes: digest, and a buffer that other processes of the machine read.

The buffer is memory without a name: readers open it through the folder of the process that made it, ``/proc/PID/fd``.
So nothing is left behind, however that process ends. It is made once and stays warm: of 500 MB, a copy into memory that
was used before takes a tenth of the first one.

What is frozen, such as the base of adapters, is written once and sent once to each reader; after that a version is what
is trained. The bytes of what is trained come first, so that both are at the start of the buffer.

Digests are against mistakes (an older version, a buffer that was overwritten), not against attacks: XXH3 with 128 bits,
which reads memory faster than it is copied.
"""

import mmap
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor, nn
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
    """Of all but what is frozen."""
    bytes: int
    frozen: tuple[str, ...] = ()
    """The parameters that stay."""
    base: str = ""
    """Digest of these; empty where there are none."""
    base_bytes: int = 0

    @property
    def key(self) -> str:
        """Two of the same number and weights have the same."""
        return f"{self.number} {self.digest} {self.base}"


def tensors_of(policy: Policy, without: Collection[str] = ()) -> Iterator[Tensor]:
    """Parameters and buffers in a fixed order; one that is tied to another comes once."""
    left_out = frozenset(without)
    for name, parameter in policy.named_parameters():
        if name not in left_out:
            yield parameter.detach()
    for _, buffer in policy.named_buffers():
        yield buffer


def frozen_of(policy: Policy, names: Collection[str]) -> list[Tensor]:
    """Some parameters in a fixed order."""
    own = frozenset(names)
    return [parameter.detach() for name, parameter in policy.named_parameters() if name in own]


def _bytes_of(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def size_of(policy: Policy) -> int:
    """Bytes of all tensors."""
    return _size(tensors_of(policy))


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def digest_of(policy: Policy) -> str:
    """XXH3 of all bytes."""
    return _digest(tensors_of(policy))


def _digest(tensors: Iterable[Tensor]) -> str:
    digest = xxhash.xxh3_128()
    for tensor in tensors:
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
    return _write(tensors_of(policy), into)


def _write(tensors: Iterable[Tensor], into: Any) -> str:
    start, digest = 0, xxhash.xxh3_128()
    for tensor in tensors:
        own = _bytes_of(tensor)
        _copy(into[start : start + len(own)], own, digest)
        start += len(own)
    return digest.hexdigest()


def read(policy: Policy, source: Any, version: Version, with_base: bool = True) -> None:
    """Give a policy the weights of a version. Raises `RunFailed` where they are not those of its digest."""
    _read(tensors_of(policy, version.frozen), source[: version.bytes], version, version.digest)
    if with_base and version.frozen:
        base = source[version.bytes : version.bytes + version.base_bytes]
        _read(frozen_of(policy, version.frozen), base, version, version.base)
    policy.version = version.number


@torch.no_grad()
def _read(tensors: Iterable[Tensor], source: Any, version: Version, expected: str) -> None:
    start, digest = 0, xxhash.xxh3_128()
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        given = source[start : start + size]
        if tensor.device.type == "cpu" and tensor.is_contiguous():
            _copy(_bytes_of(tensor), given, digest)  # in the tensor's own memory
            increment_version(tensor)  # by which copies in other forms know that they are old
        else:
            tensor.copy_(torch.from_numpy(np.array(given)).view(tensor.dtype).reshape(tensor.shape))
            digest.update(_bytes_of(tensor))
        start += size
    found = digest.hexdigest()
    if start != len(source) or found != expected:
        raise RunFailed(
            f"version {version.number} of {version.name} arrived with the digest {found}, and was sent with {expected}"
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


class Sent:
    """The weights of a policy for its readers, as they were last written."""

    def __init__(self, name: str) -> None:
        self.buffer = Buffer()
        self.version: Version | None = None
        self._name = name
        self._stamps: list[tuple[nn.Parameter, int, int]] = []
        """The frozen parameters, with what changes when they are replaced or written to."""

    def has(self, policy: Policy) -> bool:
        """Whether these are the policy's weights of now."""
        last = self.version
        return (
            last is not None
            and last.number == policy.version
            and self._has_base(policy)
            and last.digest == _digest(tensors_of(policy, last.frozen))
        )

    def _has_base(self, policy: Policy) -> bool:
        """Whether what is frozen is what was written."""
        last, names = self.version, frozen_names(policy)
        return last is not None and last.frozen == names and _same(_stamps(policy, names), self._stamps)

    def now(self, policy: Policy) -> Version:
        """Write what was changed since the last call; returns the version that the buffer has then."""
        last = self.version
        if last is not None and self.has(policy):
            return last
        names = frozen_names(policy)
        base, size = frozen_of(policy, names), _size(tensors_of(policy, names))
        is_new = last is None or last.bytes != size or not self._has_base(policy)
        room = self.buffer.room(size + _size(base))
        if is_new:
            self._stamps = _stamps(policy, names)
        self.version = Version(
            name=self._name,
            number=policy.version,
            digest=_write(tensors_of(policy, names), room[:size]),
            bytes=size,
            frozen=names,
            base=last.base if last is not None and not is_new else _write(base, room[size:]) if names else "",
            base_bytes=len(room) - size,
        )
        return self.version


def frozen_names(policy: Policy) -> tuple[str, ...]:
    """The parameters that are not trained."""
    return tuple(name for name, parameter in policy.named_parameters() if not parameter.requires_grad)


def _stamps(policy: Policy, names: Collection[str]) -> list[tuple[nn.Parameter, int, int]]:
    own = frozenset(names)
    found = [parameter for name, parameter in policy.named_parameters() if name in own]
    return [(parameter, parameter.data_ptr(), parameter._version) for parameter in found]


def _same(one: list[tuple[nn.Parameter, int, int]], other: list[tuple[nn.Parameter, int, int]]) -> bool:
    return len(one) == len(other) and all(a[0] is b[0] and a[1:] == b[1:] for a, b in zip(one, other, strict=True))


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
