"""Formulas of named numbers, as OpenAI's ``multi`` graders have them: + - * / ^, brackets, and a few functions.

Read as Python's syntax and evaluated by hand: nothing else than these is run. A formula is a part of a recipe, and as
short as one.
"""

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

LONGEST: Final = 500
"""Most characters of a formula, which bounds how deep it is nested."""
_OPERATORS: Final[Mapping[type, Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.BitXor: lambda base, exponent: math.pow(base, exponent),
    ast.Pow: lambda base, exponent: math.pow(base, exponent),
}
FUNCTIONS: Final[Mapping[str, Callable[..., float]]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
}


def check_formula(text: str, names: Collection[str]) -> None:
    """Raise `ValueError` with what is wrong with a formula of these names."""
    tree = _parsed(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in names and node.id not in FUNCTIONS:
            raise ValueError(f"there is no '{node.id}'; known are {', '.join((*names, *FUNCTIONS))}")
    _value(tree, dict.fromkeys(names, 1.0), check=True)


def evaluate_formula(text: str, values: Mapping[str, float]) -> float:
    """The value. Raises `ArithmeticError` or `ValueError` where there is none, as for a division by zero."""
    return float(_value(_parsed(text), values))


def _parsed(text: str) -> ast.expr:
    if len(text) > LONGEST:
        raise ValueError(f"it has {len(text)} characters; at most {LONGEST} are read")
    try:
        return ast.parse(text.replace("^", "**"), mode="eval").body  # ^ binds as a power does, not as Python's
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"'{text}' is no formula: {error.msg if isinstance(error, SyntaxError) else error}") from None


def _value(node: ast.expr, values: Mapping[str, float], *, check: bool = False) -> float:
    """The value of a part; with `check` only its form is checked."""

    def of(part: ast.expr) -> float:
        return _value(part, values, check=check)

    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=part):
            return -of(part) if isinstance(sign, ast.USub) else of(part)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            parts = of(left), of(right)
            return 1.0 if check else _OPERATORS[type(sign)](*parts)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as given, keywords=[]) if name in FUNCTIONS:
            arguments: list[Any] = [of(part) for part in given]
            if len(arguments) > 1 and name not in ("min", "max"):
                raise ValueError(f"{name} takes one number, not {len(arguments)}")
            if check:
                return 1.0
            return max(arguments) if name == "max" else min(arguments) if name == "min" else FUNCTIONS[name](*arguments)
    raise ValueError(f"'{ast.unparse(node)}' is not a number, a grader's name, + - * / ^ or {', '.join(FUNCTIONS)}")
