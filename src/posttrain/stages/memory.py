"""The memory of a stage as JSON: numpy arrays by type, shape and bytes, so that a resumed run has the same numbers."""

import base64
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

_ARRAY: Final = "numpy array"
"""The only key of an object that stands for an array."""


def pack(memory: Any) -> Any:
    """The tree with its arrays as JSON; a key is a text. The tree itself is not changed."""
    if isinstance(memory, np.ndarray):
        return {_ARRAY: packed_array(memory)}
    if isinstance(memory, Mapping):
        return {key: pack(value) for key, value in memory.items()}
    if isinstance(memory, list | tuple):
        return memory if all(isinstance(x, int | float | str) for x in memory) else [pack(value) for value in memory]
    return memory


def unpack(packed: Any) -> Any:
    """The tree of `pack`."""
    if isinstance(packed, Mapping):
        if packed.keys() == {_ARRAY}:
            return array_of(packed[_ARRAY])
        return {key: unpack(value) for key, value in packed.items()}
    return [unpack(value) for value in packed] if isinstance(packed, list) else packed


def packed_array(array: Any) -> list[Any]:
    """Type, shape and bytes of an array."""
    whole = np.ascontiguousarray(array)
    return [whole.dtype.str, list(whole.shape), base64.b64encode(whole.tobytes()).decode("ascii")]


def array_of(packed: Any) -> Any:
    """The array of `packed_array`."""
    kind, shape, content = packed
    return np.frombuffer(base64.b64decode(content), np.dtype(kind)).reshape(shape).copy()
