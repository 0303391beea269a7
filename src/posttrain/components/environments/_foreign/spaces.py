"""Actions of Gymnasium's spaces as text, and terminals' drawings without their colours."""

import re
from typing import Any

import numpy as np

from posttrain.components.environments._foreign import first_number

_NUMBER = re.compile(r"-?\d+\.?\d*(?:[eE]-?\d+)?")
_HIGHLIGHT = re.compile(r"\x1b\[4\dm(.*?)\x1b\[0m", re.DOTALL)
_COLOR = re.compile(r"\x1b\[[\d;]*m")


def listed(space: Any, mask: Any = None) -> list[str] | None:
    """The actions of a discrete space that a mask allows; None for other spaces."""
    if not hasattr(space, "n"):
        return None
    first = int(getattr(space, "start", 0))
    return [str(first + i) for i in range(int(space.n)) if mask is None or mask[i]]


def read(space: Any, text: str) -> Any:
    """The action of a text; None for one that the space does not have."""
    if hasattr(space, "n"):
        number = first_number(text)
        return number if number is not None and space.contains(np.int64(number)) else None
    if getattr(space, "dtype", None) is None or getattr(space, "shape", None) is None:
        return text
    numbers = [float(part) for part in _NUMBER.findall(text)]
    wanted = int(np.prod(space.shape))
    if len(numbers) < wanted:
        return None
    array = np.array(numbers[:wanted], space.dtype).reshape(space.shape)
    return np.clip(array, space.low, space.high) if hasattr(space, "low") else array


def without_colors(drawn: str) -> str:
    """A drawing for terminals without colours and the last action: what is highlighted stands in brackets."""
    text = _COLOR.sub("", _HIGHLIGHT.sub(r"[\1]", drawn)).strip("\n")
    return re.sub(r"\A {2}\(\w+\)\n|\n? {2}\(\w+\)\Z", "", text)
