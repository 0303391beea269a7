"""Reads and compares function calls, as the benchmark BFCL does: by their syntax trees, without running anything.

    f(a=1, b="x")          Python; several in a list or one per line: parallel calls
    {"name": "f", "arguments": {"a": 1, "b": "x"}}       JSON, as chat templates write it; several in a list or lines
    [{"f": {"a": [1, 2], "b": ["x", ""]}}]               only in references: allowed values; "" allows leaving it out

Names must be equal. Arguments are compared as a mapping, and parallel calls as a multiset: neither has an order. Values
are compared by type: a whole number may stand for a number with a fraction, and nothing else for anything else. Texts
are compared without regard to the amount of white space.
"""

import ast
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_CHARACTERS = 20_000
MOST_CALLS = 64


@dataclass(frozen=True, kw_only=True)
class Call:
    """A function call; in a reference, each argument with its allowed values."""

    name: str
    arguments: Mapping[str, Any]


class NoCalls(ValueError):
    """Why a text holds no calls."""


def parse_calls(text: str) -> list[Call]:
    """The calls of a text, in their order. Raises `NoCalls` for anything else."""
    text = text.strip()
    if not text:
        raise NoCalls("is empty")
    if len(text) > MOST_CHARACTERS:
        raise NoCalls(f"has {len(text)} characters, {MOST_CHARACTERS} are read")
    calls = _from_json(text) if text[0] in "{[" else None
    calls = _from_python(text) if calls is None else calls
    if len(calls) > MOST_CALLS:
        raise NoCalls(f"has {len(calls)} calls, {MOST_CALLS} are compared")
    return calls


def parse_reference(text: str) -> list[Call]:
    """The calls of a reference, with the allowed values of every argument. Raises `NoCalls`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    items = value if isinstance(value, list) else [value]
    if items and all(_allows(item) for item in items):
        return [Call(name=name, arguments=dict(allowed)) for item in items for name, allowed in item.items()]
    return [Call(name=c.name, arguments={k: [v] for k, v in c.arguments.items()}) for c in parse_calls(text)]


def difference(calls: Sequence[Call], reference: Sequence[Call]) -> str:
    """What is wrong with calls, by a reference with allowed values; empty if nothing is."""
    if len(calls) != len(reference):
        return f"has {len(calls)} calls, {len(reference)} are wanted"
    fits = [[not _fault(call, wanted) for wanted in reference] for call in calls]
    owner: dict[int, int] = {}
    for i in range(len(calls)):
        if not _placed(i, fits, owner, set()):
            name = calls[i].name
            faults = [_fault(calls[i], wanted) for wanted in reference if wanted.name == name]
            if not faults:
                return f"no call of '{name}' is wanted"
            return next(filter(None, faults), f"'{name}' is called too often with these arguments")
    return ""


def _placed(i: int, fits: Sequence[Sequence[bool]], owner: dict[int, int], tried: set[int]) -> bool:
    """Whether call `i` finds a wanted call of its own, by moving others where needed."""
    for j, fit in enumerate(fits[i]):
        if fit and j not in tried:
            tried.add(j)
            if j not in owner or _placed(owner[j], fits, owner, tried):
                owner[j] = i
                return True
    return False


def _fault(call: Call, wanted: Call) -> str:
    """How a call differs from a wanted one; empty if it does not."""
    if call.name != wanted.name:
        return f"'{call.name}' is not '{wanted.name}'"
    unknown = sorted(call.arguments.keys() - wanted.arguments.keys())
    if unknown:
        return f"'{call.name}' has no argument '{unknown[0]}'"
    for name, allowed in wanted.arguments.items():
        if name not in call.arguments:
            if "" not in [value for value in allowed if isinstance(value, str)]:
                return f"'{call.name}' lacks the argument '{name}'"
        elif not any(_same(call.arguments[name], value) for value in allowed):
            return f"the argument '{name}' of '{call.name}' is not as wanted"
    return ""


def _same(value: Any, wanted: Any) -> bool:
    """Whether two values are equal, by type."""
    if isinstance(value, str) and isinstance(wanted, str):
        return value.split() == wanted.split()
    if isinstance(value, list | tuple) and isinstance(wanted, list | tuple):
        return len(value) == len(wanted) and all(map(_same, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(_same(value[key], wanted[key]) for key in value)
    if isinstance(wanted, float) and type(value) is int:
        return value == wanted
    return type(value) is type(wanted) and bool(value == wanted)


def _allows(item: Any) -> bool:
    """Whether a value is a call with allowed values."""
    if not isinstance(item, dict) or len(item) != 1:
        return False
    (allowed,) = item.values()
    return isinstance(allowed, dict) and all(isinstance(values, list) for values in allowed.values())


def _from_json(text: str) -> list[Call] | None:
    """Calls in JSON; None where the text is none."""
    try:
        value = json.loads(text)
        items = value if isinstance(value, list) else [value]
    except (ValueError, RecursionError):
        try:
            items = [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return None
    if not items or not all(isinstance(item, dict) and "name" in item for item in items):
        return None
    calls = []
    for item in items:
        arguments = item.get("arguments", item.get("parameters", {}))
        if not isinstance(item["name"], str) or not isinstance(arguments, dict):
            raise NoCalls("has a call without a name, or without a mapping of arguments")
        calls.append(Call(name=item["name"], arguments=arguments))
    return calls


def _from_python(text: str) -> list[Call]:
    """Calls in Python: an expression, a list of them, or one per line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NoCalls("is no call, neither in Python nor in JSON") from None
    nodes: list[ast.expr] = []
    for statement in body:
        if not isinstance(statement, ast.Expr):
            raise NoCalls("has a statement that is no call")
        value = statement.value
        nodes += value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    if not nodes:
        raise NoCalls("has no call")
    return [_call(node) for node in nodes]


def _call(node: ast.expr) -> Call:
    """A call with named arguments that are literals."""
    if not isinstance(node, ast.Call):
        raise NoCalls("has something that is no call")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise NoCalls("has an argument without a name")
    names = [str(keyword.arg) for keyword in node.keywords]
    if len(set(names)) < len(names):
        raise NoCalls("has an argument twice")
    try:
        name = ast.unparse(node.func)
        values = [ast.literal_eval(keyword.value) for keyword in node.keywords]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise NoCalls("has an argument that is no literal") from None
    if not all(part.isidentifier() for part in name.split(".")):
        raise NoCalls("calls something that is no name")
    return Call(name=name, arguments=dict(zip(names, values, strict=True)))
