"""The container of a GGUF file: its metadata and where its tensors are, bounded by the size of the file.

Format: specification of GGUF, versions 2 and 3, little-endian. Types of values and of tensors are those of the library
``gguf``, which also dequantizes. Its own reader is not used: it trusts the counts of a file, so one of a hundred bytes
can occupy it for ever, and it takes seconds for a vocabulary.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from posttrain.datasets.extras import extra
from posttrain.errors import UserError
from posttrain.errors.foreign import check_file, guard, shown

LARGEST_HEADER = 256 << 20
"""Bytes of metadata and table of tensors; a vocabulary of 256k tokens takes about 16 MB."""
_LONGEST_NAME = 65_535
_MOST_AXES = 4
_SCALARS = {
    "UINT8": "B", "INT8": "b", "UINT16": "H", "INT16": "h", "UINT32": "I", "INT32": "i", "FLOAT32": "f", "BOOL": "?",
    "UINT64": "Q", "INT64": "q", "FLOAT64": "d",
}  # fmt: skip
_PLAIN: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "F64": np.dtype("<f8")}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A tensor in the file."""

    shape: tuple[int, ...]
    """As torch has it, the row last: the reverse of the file's."""
    type: Any
    """``gguf.GGMLQuantizationType``."""
    start: int
    """First byte in the file."""
    size: int
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """What a GGUF file holds."""

    path: Path
    metadata: Mapping[str, Any]
    """Values by key: numbers, texts, and lists of them."""
    entries: Mapping[str, Entry]
    """Tensors by name."""

    def tensor(self, name: str) -> Tensor:
        """A tensor: F16 and BF16 as they are, everything else as float32.

        Raises `UserError` where a value is not finite.
        """
        entry = self.entries[name]
        with guard(f"'{self.path}': tensor '{shown(name, 100)}' cannot be read"):
            raw = np.fromfile(self.path, np.uint8, entry.size, offset=entry.start)
            if len(raw) != entry.size:
                raise ValueError(f"the file ends after {len(raw):,} of its {entry.size:,} bytes")
            kind = entry.type.name
            if kind == "BF16":
                tensor = torch.from_numpy(raw).view(torch.bfloat16).view(entry.shape)
            elif kind in _PLAIN:
                tensor = torch.from_numpy(raw.view(_PLAIN[kind]).reshape(entry.shape))
            else:
                rows = raw.reshape(-1, entry.size // math.prod(entry.shape[:-1]))
                with np.errstate(all="ignore"):  # values that are not finite are refused below
                    tensor = torch.from_numpy(library().dequantize(rows, entry.type)).view(entry.shape)
        tensor = tensor.float() if kind == "F64" else tensor
        if not tensor.isfinite().all():
            raise UserError(
                f"'{self.path}': tensor '{shown(name, 100)}' ({kind}) holds values that are not finite (NaN or "
                "infinity); the file is damaged: copy or download it again"
            )
        return tensor


def library() -> Any:
    """The library ``gguf``. Raises `UserError` where it is not installed."""
    return extra("gguf", "gguf")


def read_container(path: Path) -> Container:
    """Read all but the tensors. Raises `UserError` for a file that is damaged, cut short, or of another kind."""
    size = check_file(path)
    types = library().GGUFValueType
    with guard(f"'{path}' ({size:,} bytes) is not a readable GGUF file"), path.open("rb") as file:
        source = _Source(file, size)
        tensors, values = source.begin()
        metadata = {}
        for _ in range(values):
            key = source.text(_LONGEST_NAME)
            if key in metadata:
                raise ValueError(f"the key {shown(repr(key), 80)} is there twice")
            metadata[key] = source.value(types)
        found = [source.entry() for _ in range(tensors)]
        start = _aligned(source.at, metadata.get("general.alignment", 32))
        entries = {name: _placed(entry, start) for name, entry in found}
        if len(entries) < len(found):
            names = [name for name, _ in found]
            raise ValueError(f"tensor {shown(repr(next(n for n in names if names.count(n) > 1)), 80)} is there twice")
        _check_places(entries, size)
    return Container(path=path, metadata=metadata, entries=entries)


class _Source:
    """The header of the file, read forward; whatever is read is there, and bounded, before memory is taken for it."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size, self.at = file, size, 0

    def begin(self) -> tuple[int, int]:
        """The numbers of tensors and of values."""
        if self._size < 24 or self._file.read(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        self.at = 4
        [version] = self.numbers("I", 1)
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3)
            raise ValueError(
                "it is big-endian, and only little-endian files are read" if swapped else
                f"its format is version {version}, and versions 2 and 3 are read"
            )  # fmt: skip
        tensors, values = self.numbers("Q", 2)
        self._fits(tensors, 24, "tensors")
        self._fits(values, 13, "values")
        return tensors, values

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        """`count` numbers of a type of `struct`."""
        self._fits(count, struct.calcsize(f"<{code}"), "numbers")
        return struct.unpack(f"<{count}{code}", self._take(count * struct.calcsize(f"<{code}")))

    def text(self, longest: int = LARGEST_HEADER) -> str:
        """A text with its length before it."""
        [length] = self.numbers("Q", 1)
        if length > longest:
            raise ValueError(f"at byte {self.at:,}: a text of {length:,} bytes, and at most {longest:,} are read")
        self._fits(length, 1, "bytes of text")
        return self._take(length).decode("utf-8")

    def value(self, types: Any) -> Any:
        """A value with its type before it."""
        kind = types(self.numbers("I", 1)[0]).name
        if kind != "ARRAY":
            return self.text() if kind == "STRING" else self.numbers(_SCALARS[kind], 1)[0]
        kind = types(self.numbers("I", 1)[0]).name
        [count] = self.numbers("Q", 1)
        if kind == "ARRAY":
            raise ValueError(f"at byte {self.at:,}: a list of lists, which no setting of a model is")
        self._fits(count, 8 if kind == "STRING" else struct.calcsize(f"<{_SCALARS[kind]}"), "values in a list")
        if kind == "STRING":
            return [self.text() for _ in range(count)]
        return list(self.numbers(_SCALARS[kind], count))

    def entry(self) -> tuple[str, Entry]:
        """A tensor's row of the table; its start is counted from the end of the table."""
        name = self.text(_LONGEST_NAME)
        [axes] = self.numbers("I", 1)
        if not 1 <= axes <= _MOST_AXES:
            raise ValueError(f"tensor {shown(repr(name), 80)} has {axes} axes; 1 to {_MOST_AXES} are possible")
        sizes = self.numbers("Q", axes)
        [number], [start] = self.numbers("I", 1), self.numbers("Q", 1)
        kind = _tensor_type(name, number)
        block, bytes_of_block = library().GGML_QUANT_SIZES[kind]
        if min(sizes) < 1 or sizes[0] % block:
            raise ValueError(
                f"tensor {shown(repr(name), 80)} is {list(sizes)} of {kind.name}, whose rows are multiples of {block}"
            )
        size = math.prod(sizes) // block * bytes_of_block
        return name, Entry(shape=tuple(reversed(sizes)), type=kind, start=start, size=size)

    def _fits(self, count: int, least: int, what: str) -> None:
        """Raise `ValueError` where `count` things, of at least `least` bytes each, are more than the file has left."""
        left = self._size - self.at
        if count * least > left:
            raise ValueError(f"at byte {self.at:,}: it announces {count:,} {what}, and only {left:,} bytes are left")

    def _take(self, count: int) -> bytes:
        if self.at + count > LARGEST_HEADER:
            raise ValueError(f"its metadata has more than {LARGEST_HEADER:,} bytes")
        content = self._file.read(count)
        if len(content) < count:
            raise ValueError(f"it is cut short at byte {self.at + len(content):,}")
        self.at += count
        return content


def _tensor_type(name: str, number: int) -> Any:
    """The type of a tensor. Raises `ValueError` for one that cannot be dequantized."""
    known = {kind.value: kind for kind in library().GGMLQuantizationType}
    kind = known.get(number)
    if kind is not None and kind.name in (*_PLAIN, "BF16"):
        return kind
    try:
        if kind is None or (kind.name.startswith("I") and kind.name[1:].isdigit()):  # whole numbers are no weights
            raise NotImplementedError
        library().dequantize(np.zeros((1, library().GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        raise ValueError(
            f"tensor '{shown(name, 100)}' is of type {kind.name if kind else number}, which cannot be dequantized here "
            "(the library gguf does F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K and most of IQ); take the model in "
            "another type, F16 or Q8_0 for example"
        ) from None
    return kind


def _aligned(at: int, alignment: Any) -> int:
    """The next multiple of the alignment."""
    if not isinstance(alignment, int) or not 8 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {shown(repr(alignment), 40)}; it is a power of two from 8")
    return -(-at // alignment) * alignment


def _placed(entry: Entry, start: int) -> Entry:
    return Entry(shape=entry.shape, type=entry.type, start=start + entry.start, size=entry.size)


def _check_places(entries: Mapping[str, Entry], size: int) -> None:
    """Raise `ValueError` for tensors that overlap or are not wholly in the file.

    Tensors that overlap would let a small file take any amount of memory.
    """
    end, before = 0, ""
    for name, entry in sorted(entries.items(), key=lambda item: item[1].start):
        if entry.start + entry.size > size:
            raise ValueError(
                f"it is cut short: tensor {shown(repr(name), 80)} ends at byte {entry.start + entry.size:,}"
            )
        if entry.start < end:
            raise ValueError(f"the tensors {shown(repr(before), 80)} and {shown(repr(name), 80)} overlap")
        end, before = entry.start + entry.size, name
