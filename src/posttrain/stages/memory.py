"""The memory of a stage as JSON: numpy arrays by type, shape and bytes, so that a resumed run has the same numbers."""

import base64
import json
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


def difference(old: Any, new: Any) -> Any:
    """What makes `new` of `old`, both JSON: None where they are the same text.

    ``{"set": value}``; ``{"list": [dropped at the front, [appended]]}``; ``{"dict": [[removed keys], {key: difference},
    [[appended key, value]]]}``, where the order of keys is that of both.
    """
    if json.dumps(old) == json.dumps(new):
        return None
    if isinstance(old, list) and isinstance(new, list):
        dropped = _dropped([json.dumps(own) for own in old], [json.dumps(own) for own in new])
        return {"set": new} if dropped is None else {"list": [dropped, new[len(old) - dropped :]]}
    if isinstance(old, dict) and isinstance(new, dict):
        kept = [key for key in old if key in new]
        if [*new][: len(kept)] == kept:
            changes = {key: found for key in kept if (found := difference(old[key], new[key])) is not None}
            return {
                "dict": [[key for key in old if key not in new], changes, [*map(list, [*new.items()][len(kept) :])]]
            }
    return {"set": new}


def applied(old: Any, change: Any) -> Any:
    """What `difference` was made of; `old` is not changed. Raises `ValueError` for what is no difference."""
    try:
        [(kind, content)] = change.items()
        if kind == "set":
            return content
        if kind == "list" and isinstance(old, list):
            dropped, added = content
            return [*old[dropped:], *added]
        if kind == "dict" and isinstance(old, dict):
            removed, changes, added = content
            found = {key: value for key, value in old.items() if key not in set(removed)}
            found |= {key: applied(found[key], own) for key, own in changes.items()}
            return found | dict(added)
    except (AttributeError, TypeError, LookupError) as error:
        raise ValueError(str(error)) from None
    raise ValueError(f"a change of kind {kind}")


def _dropped(old: list[str], new: list[str]) -> int | None:
    """How many elements were dropped at the front, where the rest is the start of `new`; None where it is not."""
    for start in range(len(old)):
        if new[: len(old) - start] == old[start:]:
            return start
    return None
