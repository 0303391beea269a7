"""The weights of a policy as one run of bytes: digest, and a buffer that other processes of the machine read.

Their copies of a model have no weights of their own: what they compute with is the buffer. So a version is there when
it was written once and its digest was compared. Whatever reads a buffer has ended before the next version is written.

The buffer is memory without a name: readers open it through the folder of the process that made it, ``/proc/PID/fd``.
So nothing is left behind, however that process ends. It is made once and stays warm: of 500 MB, a copy into memory that
was used before takes a tenth of the first one.

What is frozen, such as the base of adapters, is written once and sent once to each reader; after that a version is what
is trained. The bytes of what is trained come first, so that both are at the start of the buffer. A tensor begins at a
multiple of `ALIGNED` bytes, as in memory of torch's own: products may have other last bits elsewhere.

Digests are against mistakes (an older version, a buffer that was overwritten), not against attacks: XXH3 with 128 bits,
which reads memory faster than it is copied.
"""

import io
import mmap
import os
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
import xxhash
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from posttrain.errors import RunFailed
from posttrain.kernels.memory import take_large_pages
from posttrain.policies import Policy

ALIGNED: Final = 64
"""Bytes, of whose multiples each tensor begins at one."""
PIECE: Final = 1 << 19
"""Bytes that are copied and then digested, while they are in the processor's cache."""


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


def tensors_of(policy: Policy, without: Collection[str] = ()) -> list[Tensor]:
    """Parameters and buffers in a fixed order; one that is tied to another comes once."""
    left_out = frozenset(without)
    own = [parameter for name, parameter in policy.named_parameters() if name not in left_out]
    return [*own, *(buffer for _, buffer in policy.named_buffers())]


def frozen_of(policy: Policy, names: Collection[str]) -> list[Tensor]:
    """Some parameters in a fixed order."""
    own = frozenset(names)
    return [parameter for name, parameter in policy.named_parameters() if name in own] if own else []


def _bytes_of(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def without_weights(policy: Policy) -> bytes:
    """A policy as bytes in which parameters and buffers have their forms only: a version of them is what comes next.

    Their content would be the most of it, once more for each reader, and would be replaced at once.
    """
    from ray import cloudpickle as untyped

    cloudpickle: Any = untyped
    left_out = {id(tensor) for tensor in tensors_of(policy)}

    def reducer_override(pickler: Any, found: Any) -> Any:
        if id(found) not in left_out:
            return cloudpickle.Pickler.reducer_override(pickler, found)
        form = tuple(found.shape), found.stride(), found.dtype
        return _empty, (*form, found.requires_grad, isinstance(found, nn.Parameter), dict(vars(found)))

    into = io.BytesIO()
    pickler = type("Pickler", (cloudpickle.Pickler,), {"reducer_override": reducer_override})
    pickler(into, protocol=pickle.HIGHEST_PROTOCOL).dump(policy)
    return into.getvalue()


def _empty(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, learned: bool, named: bool, state: Any
) -> Tensor:
    """A tensor whose memory is not touched."""
    made: Tensor = torch.empty_strided(shape, stride, dtype=dtype)
    made = nn.Parameter(made, requires_grad=learned) if named else made.requires_grad_(learned)
    vars(made).update(state)
    return made


def size_of(policy: Policy) -> int:
    """Bytes that all tensors take in a buffer."""
    return _size(tensors_of(policy))


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(aligned(tensor.nbytes) for tensor in tensors)


def aligned(size: int) -> int:
    """Bytes from the start of a tensor to that of the next one."""
    return -(-size // ALIGNED) * ALIGNED


_GAP: Final[Any] = np.zeros(ALIGNED, np.uint8)


def digest_of(policy: Policy) -> str:
    """XXH3 of all bytes, as a buffer has them."""
    return _digest(tensors_of(policy))


def _digest(tensors: Iterable[Tensor]) -> str:
    digest = xxhash.xxh3_128()
    for tensor in tensors:
        digest.update(_bytes_of(tensor))
        if gap := aligned(tensor.nbytes) - tensor.nbytes:
            digest.update(_GAP[:gap])
    return digest.hexdigest()


def write(policy: Policy, into: Any) -> str:
    """Copy all bytes into an array of `size_of` bytes. Returns their digest."""
    return _write(tensors_of(policy), into)


def _write(tensors: Iterable[Tensor], into: Any) -> str:
    """Bytes are digested as they arrived."""
    start, digest = 0, xxhash.xxh3_128()
    for tensor in tensors:
        own = _bytes_of(tensor)
        for first in range(0, len(own), PIECE):
            last = min(first + PIECE, len(own))
            piece = into[start + first : start + last]
            piece[:] = own[first:last]
            digest.update(piece)
        end = start + aligned(len(own))
        if gap := end - start - len(own):
            into[end - gap : end] = 0
            digest.update(_GAP[:gap])
        start = end
    return digest.hexdigest()


def read(policy: Policy, source: Any, version: Version, with_base: bool = True) -> None:
    """Copy a version into the tensors of a policy. Raises `RunFailed` where it is not that of its digest."""
    check(source, version, with_base)
    _read(tensors_of(policy, version.frozen), source[: version.bytes])
    if with_base:
        _read(frozen_of(policy, version.frozen), source[version.bytes :])
    policy.version = version.number


@torch.no_grad()
def _read(tensors: Iterable[Tensor], source: Any) -> None:
    for tensor, given in _placed(tensors, source):
        tensor.copy_(given)


def _placed(tensors: Iterable[Tensor], source: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Each tensor with the one of its shape in a buffer."""
    start = 0
    for tensor in tensors:
        given = source[start : start + tensor.nbytes]
        own = torch.from_numpy(given if given.flags.writeable else given.copy())
        yield tensor, own.view(tensor.dtype).reshape(tensor.shape)
        start += aligned(tensor.nbytes)
    assert start <= len(source), "a version has the size of its policy"


def check(source: Any, version: Version, with_base: bool = False) -> None:
    """Raise `RunFailed` where bytes are not those of a version's digest."""
    parts = [(0, version.bytes, version.digest)]
    if with_base and version.frozen:
        parts.append((version.bytes, version.bytes + version.base_bytes, version.base))
    for start, end, expected in parts:
        found = xxhash.xxh3_128(source[start:end]).hexdigest()
        if found != expected:
            raise RunFailed(
                f"version {version.number} of {version.name} arrived with the digest {found}, and was sent with "
                f"{expected}"
            )


class Shared:
    """A policy whose weights are those in a buffer of another process."""

    def __init__(self, policy: Policy, source: Any, version: Version) -> None:
        """Give up the policy's own weights. `source` has those of the version, the base included."""
        self.source = source
        self._policy = policy
        self._trained = tensors_of(policy, version.frozen)
        self._frozen = frozen_of(policy, version.frozen)
        pairs = [*_placed(self._trained, source), *_placed(self._frozen, source[version.bytes :])]
        self._copied = [(tensor, there) for tensor, there in pairs if not tensor.is_contiguous()]
        """Tensors of another order of their elements, which keep it, and what they get."""
        with torch.no_grad():
            for tensor, there in pairs:
                if tensor.is_contiguous():
                    tensor.set_(there)  # type: ignore[call-overload]

    def take(self, version: Version, with_base: bool) -> None:
        """Go on with what the buffer has now. Raises `RunFailed` where it is not of the version's digest."""
        check(self.source, version, with_base)
        with torch.no_grad():
            for tensor, there in self._copied:
                tensor.copy_(there)
        increment_version([*self._trained, *(self._frozen if with_base else ())])  # copies in other forms are old then
        self._policy.version = version.number


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
            take_large_pages(self.array.ctypes.data, size)
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
        self._stamps: Stamps = []
        """The frozen parameters, with what changes when they are replaced or written to."""
        self._arrived: Stamps = []
        """The same of what is trained, where it came from the buffer and not from the policy."""

    def has(self, policy: Policy) -> bool:
        """Whether these are the policy's weights of now."""
        return self._has(policy, _Split.of(policy))

    def _has(self, policy: Policy, own: "_Split") -> bool:
        last = self.version
        return (
            last is not None
            and last.number == policy.version
            and self._has_base(own)
            and (self._is_arrived(own) or last.digest == _digest(own.trained))
        )

    def _is_arrived(self, own: "_Split") -> bool:
        """Whether what is trained is what others wrote into the buffer."""
        return bool(self._arrived) and _same(stamps(own.trained), self._arrived)

    def _has_base(self, own: "_Split") -> bool:
        """Whether what is frozen is what was written."""
        return self.version is not None and self.version.frozen == own.names and _same(stamps(own.frozen), self._stamps)

    def now(self, policy: Policy) -> Version:
        """Write what was changed since the last call; returns the version that the buffer has then."""
        last, own = self.version, _Split.of(policy)
        if last is not None and self._has(policy, own):
            return last
        if last is not None and self._has_base(own) and self._is_arrived(own):
            self.version = replace(last, number=policy.version)
            return self.version
        self._arrived = []
        size = _size(own.trained)
        is_new = last is None or last.bytes != size or not self._has_base(own)
        room = self.buffer.room(size + _size(own.frozen))
        if is_new:
            self._stamps = stamps(own.frozen)
        self.version = Version(
            name=self._name,
            number=policy.version,
            digest=_write(own.trained, room[:size]),
            bytes=size,
            frozen=own.names,
            base=last.base if last is not None and not is_new else _write(own.frozen, room[size:]) if own.names else "",
            base_bytes=len(room) - size,
        )
        return self.version

    def places(self, policy: Policy) -> dict[str, int]:
        """Where others write the trained parameters of the next version, in bytes, by name. `arrive` comes next."""
        self.now(policy)
        assert self.version is not None, "it was written"
        self.version, self._arrived = replace(self.version, digest=""), []
        found, start = dict[str, int](), 0
        for name, parameter in policy.named_parameters():
            if parameter.requires_grad:
                found[name] = start
                start += aligned(parameter.nbytes)
        return found

    def arrive(self, policy: Policy) -> None:
        """Give the policy what others have written."""
        assert self.version is not None, "it has places"
        source, own = self.buffer.array[: self.version.bytes], _Split.of(policy)
        _read(own.trained, source)
        self.version = replace(self.version, digest=xxhash.xxh3_128(source).hexdigest())
        self._arrived = stamps(own.trained)


def write_at(path: str, tensors: Mapping[str, Tensor], places: Mapping[str, int]) -> None:
    """Write tensors into the buffer of another process of this machine."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for name, tensor in tensors.items():
            left, start = memoryview(_bytes_of(tensor)), places[name]
            while left:
                count = os.pwrite(descriptor, left, start)
                left, start = left[count:], start + count
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Split:
    """The tensors of a policy, from one walk through its modules."""

    trained: list[Tensor]
    """And buffers."""
    frozen: list[nn.Parameter]
    names: tuple[str, ...]
    """Of what is frozen."""

    @staticmethod
    def of(policy: Policy) -> "_Split":
        """In the order of `tensors_of`."""
        named = list(policy.named_parameters())
        frozen = {name: parameter for name, parameter in named if not parameter.requires_grad}
        trained = [parameter for _, parameter in named if parameter.requires_grad]
        return _Split([*trained, *(buffer for _, buffer in policy.named_buffers())], [*frozen.values()], tuple(frozen))


Stamps = list[tuple[Tensor, int, int]]


def stamps(tensors: Iterable[Tensor]) -> Stamps:
    """What changes when one of them is replaced or written to."""
    return [(tensor, tensor.data_ptr(), tensor._version) for tensor in tensors]


def _same(one: Stamps, other: Stamps) -> bool:
    return len(one) == len(other) and all(a[0] is b[0] and a[1:] == b[1:] for a, b in zip(one, other, strict=True))


class Mapped:
    """Buffers of another process, which stay open between versions."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, Any]] = {}

    def array(self, name: str, path: str) -> Any:
        """The buffer at a path, which is that of a model: the same array while it is the same buffer."""
        number = os.stat(path).st_ino  # the path of one that was closed may be that of another one now
        before, array = self._open.get(name, (-1, np.zeros(0, np.uint8)))
        if before != number:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # what is written here stays here, and the next version has another digest
                whole = mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
            finally:
                os.close(descriptor)
            array = np.frombuffer(whole, np.uint8)
            take_large_pages(array.ctypes.data, len(array))
            self._open[name] = number, array
        return array

    def forget(self, name: str) -> None:
        """Close the buffer of a model."""
        self._open.pop(name, None)
