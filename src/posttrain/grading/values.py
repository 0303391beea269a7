"""Typed values from a sandbox, and their comparison, defined for any input.

Inside, a value becomes a tree of JSON lists, ``["int", "-0x1f"]``, ``["list", [...]]``, by its exact type. An object of
a class that claims to equal everything becomes ``["other", name]``, which equals nothing. Outside, `parse` takes any
bytes, and `same` any two trees. Nothing that comes from inside is ever evaluated.
"""

import ast
import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

ENCODER: Final = """
def encode(value, budget=[100_000], depth=0):
    budget[0] -= 1
    kind = type(value)
    if budget[0] < 0 or depth > 60:
        return ["other", "too large"]
    if value is None or kind is bool or kind is str:
        return ["none"] if value is None else ["bool" if kind is bool else "str", value]
    if kind is int:
        return ["int", hex(value)]
    if kind is float:
        return ["float", value.hex()]
    if kind is complex:
        return ["complex", [value.real.hex(), value.imag.hex()]]
    if kind is bytes or kind is bytearray:
        return [kind.__name__, value.hex()]
    if kind in (list, tuple, set, frozenset):
        return [kind.__name__, [encode(item, budget, depth + 1) for item in value]]
    if kind is dict:
        return ["dict", [[encode(k, budget, depth + 1), encode(v, budget, depth + 1)] for k, v in value.items()]]
    return ["other", kind.__name__]
"""
"""Python source of the encoder, which is run inside, and outside for values of the data."""

Tree = Sequence[Any]
DEEPEST: Final = 200


_namespace: dict[str, Any] = {}
exec(ENCODER, _namespace)  # our own source, a few lines above


def tree_of(value: Any) -> Tree:
    """The tree of a value of the data."""
    tree: Tree = _namespace["encode"](value, [1_000_000])
    return tree


def parse(line: bytes) -> Any:
    """Parses untrusted JSON; None for invalid JSON, and for JSON that is nested too deeply."""
    depth = 0
    if line.count(b"[") + line.count(b"{") > DEEPEST:
        for byte in line:
            depth += (byte in b"[{") - (byte in b"]}")
            if depth > DEEPEST:
                return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, a number of too many digits
        return None


def same(found: Any, expected: Tree, *, tolerance: float = 0.0, loose: bool = False) -> bool:
    """Whether a tree from inside equals the expected tree.

    Integers and floats are compared by value, exactly or to within `tolerance` times the larger one. A bool is not a
    number. `loose` accepts a tuple for a list, since expected values that come from JSON have no tuples.
    """
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        return False
    kind, wanted = found[0], expected[0]
    if kind in ("int", "float") and wanted in ("int", "float"):
        return _samenumber_of(number_of(found), number_of(expected), tolerance)
    if kind != wanted and not (loose and kind == "tuple" and wanted == "list"):
        return False
    if kind == "other":
        return False
    if wanted in ("list", "tuple", "set", "frozenset", "dict"):
        return len(found) == 2 and _same_items(found[1], expected, tolerance, loose)
    return bool(found == list(expected))


def _same_items(found: Any, expected: Tree, tolerance: float, loose: bool) -> bool:
    items = expected[1]
    if not isinstance(found, list) or len(found) != len(items):
        return False
    if expected[0] in ("list", "tuple"):
        pairs = zip(found, items, strict=True)
        return all(same(f, e, tolerance=tolerance, loose=loose) for f, e in pairs)
    found, items = sorted(found, key=_order), sorted(items, key=_order)
    if expected[0] != "dict":
        return all(same(f, e, tolerance=tolerance, loose=loose) for f, e in zip(found, items, strict=True))
    return all(
        isinstance(f, list)
        and len(f) == 2
        and all(same(f[i], e[i], tolerance=tolerance, loose=loose) for i in range(2))
        for f, e in zip(found, items, strict=True)
    )


def _order(tree: Any) -> tuple[float, str]:
    """Key of a total order of trees, in which numbers are ordered by value."""
    key = tree[0] if isinstance(tree, list) and tree and isinstance(tree[0], list) else tree  # of a pair, its key
    number = number_of(key)
    return (float("-inf"), json.dumps(tree)) if number is None or number != number else (_as_float(number), "")


def number_of(tree: Any) -> Fraction | float | None:
    """The value of the tree of a number; None for other trees."""
    if not isinstance(tree, list | tuple) or len(tree) != 2 or not isinstance(tree[1], str):
        return None
    try:
        if tree[0] == "int":
            return Fraction(int(tree[1], 16))
        value = float.fromhex(tree[1]) if tree[0] == "float" else None
    except (ValueError, OverflowError):
        return None
    return Fraction(value) if value is not None and math.isfinite(value) else value


def _as_float(number: Fraction | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _samenumber_of(found: Fraction | float | None, expected: Fraction | float | None, tolerance: float) -> bool:
    if isinstance(found, Fraction) and isinstance(expected, Fraction):
        return abs(found - expected) <= Fraction(tolerance) * max(abs(found), abs(expected))
    if isinstance(found, float) and isinstance(expected, float):
        return found == expected or (math.isnan(found) and math.isnan(expected))
    return False


_CALLS: Final = {"set": set, "frozenset": frozenset, "list": list, "tuple": tuple, "dict": dict, "float": float}


def in_order(trees: Sequence[Any]) -> list[Any]:
    """Trees in a canonical order, so that two lists can be compared as multisets."""
    return sorted(trees, key=_deep_order)


def _deep_order(tree: Any) -> tuple[Any, ...]:
    items = tree[1] if isinstance(tree, list) and len(tree) == 2 and isinstance(tree[1], list) else [tree]
    return tuple(_order(item) for item in items)


def literal(text: str) -> Any:
    """The value of a literal expression of the data, where calls such as ``set([1, 2])`` are allowed. Raises
    `ValueError` for other expressions.
    """
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text[:80]!r} is no plain value ({error})") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS and not node.keywords:
        return _CALLS[node.func.id](*(_value(argument) for argument in node.args))
    match node:
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Set(elts=items):
            return {_value(item) for item in items}
        case ast.Dict(keys=keys, values=values):
            return {_value(k): _value(v) for k, v in zip(keys, values, strict=True) if k is not None}
    return ast.literal_eval(node)
