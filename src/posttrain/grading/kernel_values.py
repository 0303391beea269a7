"""Arrays for kernels: what a task states of them, how they are drawn and compared, and their form on the way into the
sandbox and out of it.

An input is written ``float32[3,17]``, a number, or true or false. Arrays travel as ``["array", dtype, shape, base64]``,
bfloat16 by its 16 bits. Nothing that comes from inside is ever evaluated.
"""

import base64
import binascii
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

ITEMS: Final[Mapping[str, str]] = {
    "float16": "<f2",
    "bfloat16": "<u2",
    "float32": "<f4",
    "float64": "<f8",
    "int32": "<i4",
    "int64": "<i8",
}
"""By dtype, how numpy holds an element."""
TOLERANCE: Final[Mapping[str, float]] = {
    "float16": 1e-2,
    "bfloat16": 2e-2,
    "float32": 1e-4,
    "float64": 1e-7,
    "int32": 0.0,
    "int64": 0.0,
}
"""Largest difference, as a share of the largest expected magnitude of an array, or of `SMALLEST` where that is smaller:
rounding before a sum that cancels is as large as its terms."""
SMALLEST: Final = 1e-3
MOST_ELEMENTS: Final = 1 << 18
"""Of one array."""
MOST_CASES: Final = 32
_ARRAY: Final = re.compile(r"(\w+)\[(\d{1,7}(?:,\d{1,7}){0,4})\]")
Packed = list[Any]


@dataclass(frozen=True, slots=True)
class Array:
    """An array; `values` are of a type that numpy has, float32 for bfloat16."""

    dtype: str
    values: NDArray[Any]


Argument = Array | bool | int | float


def cases_of(inputs: Any) -> list[list[Any]]:
    """The cases of a task's ``inputs``: of each argument its dtype and shape, or a number. Raises `ValueError`."""
    if not isinstance(inputs, Sequence) or isinstance(inputs, str) or not inputs:
        raise ValueError("has no test: 'inputs' is a list of cases, each a list such as [\"float32[3,17]\", 2]")
    if len(inputs) > MOST_CASES:
        raise ValueError(f"has {len(inputs)} cases in 'inputs'; at most {MOST_CASES} are run")
    return [_case(case) for case in inputs]


def _case(case: Any) -> list[Any]:
    if not isinstance(case, Sequence) or isinstance(case, str) or not case:
        raise ValueError(f"has the case {case!r:.60} in 'inputs', which is no list of arguments")
    return [_specified(argument) for argument in case]


def _specified(argument: Any) -> Any:
    if isinstance(argument, bool | int | float):
        return argument
    found = _ARRAY.fullmatch(argument.replace(" ", "")) if isinstance(argument, str) else None
    if found is None or found[1] not in ITEMS:
        raise ValueError(
            f"has the argument {argument!r:.60} in 'inputs'; an array is written float32[3,17], with one of "
            f"{', '.join(ITEMS)}"
        )
    shape = tuple(map(int, found[2].split(",")))
    if not 0 < math.prod(shape) <= MOST_ELEMENTS:
        raise ValueError(f"has the argument {argument} in 'inputs', of no element or more than {MOST_ELEMENTS}")
    return found[1], shape


def drawn(case: Sequence[Any], rng: np.random.Generator) -> list[Argument]:
    """Arguments of a case: normally distributed floats, integers from -8 to 8."""
    return [_drawn(argument[0], argument[1], rng) if isinstance(argument, tuple) else argument for argument in case]


def _drawn(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if dtype.startswith("int"):
        return Array(dtype, rng.integers(-8, 9, shape).astype(ITEMS[dtype]))
    values = rng.standard_normal(shape)
    if dtype == "bfloat16":
        return Array(dtype, _of_bits(_bits(values)))
    return Array(dtype, values.astype(ITEMS[dtype]))


def packed(argument: Argument) -> Packed:
    """An argument as JSON."""
    if not isinstance(argument, Array):
        return ["number", argument]
    raw = _bits(argument.values) if argument.dtype == "bfloat16" else argument.values.astype(ITEMS[argument.dtype])
    return ["array", argument.dtype, list(argument.values.shape), base64.b64encode(raw.tobytes()).decode("ascii")]


def unpacked(found: Any) -> Array | None:
    """An array from outside of this process; None for anything else."""
    match found:
        case ["array", str() as dtype, list() as shape, str() as text] if dtype in ITEMS and len(shape) <= 8:
            pass
        case _:
            return None
    if not all(type(size) is int and 0 <= size <= MOST_ELEMENTS for size in shape):
        return None
    try:
        raw = np.frombuffer(base64.b64decode(text, validate=True), ITEMS[dtype])
    except (ValueError, binascii.Error):
        return None
    if raw.size != math.prod(shape):
        return None
    values = raw.reshape(shape)
    return Array(dtype, _of_bits(values) if dtype == "bfloat16" else values)


def difference(found: Any, expected: Array, tolerance: float) -> str:
    """How a packed array differs from the expected one; empty where it does not."""
    own = unpacked(found)
    if own is None:
        return "no array"
    if own.dtype != expected.dtype or own.values.shape != expected.values.shape:
        return f"{own.dtype}{list(own.values.shape)} in place of {expected.dtype}{list(expected.values.shape)}"
    a, b = own.values, expected.values
    if expected.dtype.startswith("int"):
        wrong = a != b
    else:
        with np.errstate(invalid="ignore"):  # of what was never written
            a, b = a.astype(np.float64), b.astype(np.float64)
        sizes = np.abs(b[np.isfinite(b)])
        bound = tolerance * max(SMALLEST, float(sizes.max()) if sizes.size else 0.0)
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(a - b) <= bound
        wrong = ~((a == b) | (near & np.isfinite(b)) | (np.isnan(a) & np.isnan(b)))
    count = int(np.count_nonzero(wrong))
    return f"{count} of {wrong.size} values differ" if count else ""


def _bits(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each value, to even; values are finite."""
    whole = values.astype("<f4").view("<u4")
    found: NDArray[np.uint16] = ((whole + 0x7FFF + ((whole >> 16) & 1)) >> 16).astype("<u2")
    return found


def _of_bits(bits: NDArray[Any]) -> NDArray[np.float32]:
    return (bits.astype("<u4") << 16).view("<f4")
