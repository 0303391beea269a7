"""How near a call of a function comes to one of its lines: branch distances of the guards around it.

Source: search-based testing (Korel 1990; Tracey et al. 1998). The guards of a line are the conditions of the ``if`` and
``while`` statements that it is inside of, outermost first. The distance of a comparison to being true is

    a == b   |a - b|        a != b   1 where they are equal
    a >= b   b - a          a > b    b - a + 1          (and the other way around)

0 where it is true; of values that are no numbers it is 1. ``and`` adds distances, and 1 for each part that was not
evaluated, ``or`` takes the smallest in the same way, ``not`` the distance to being false, and of anything else it is 1.
A guard that is evaluated several times has its smallest.
"""

import ast
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from posttrain.errors import UserError

PREFIX: Final = "_posttrain_"
HARNESS: Final = """
import inspect as _posttrain_inspect
import json as _posttrain_json

class _posttrain_Hang(BaseException):
    pass

class _posttrain_State:
    left = 0
    reached = False
    nearest = []

def _posttrain_tick():
    _posttrain_State.left -= 1
    if _posttrain_State.left < 0:
        raise _posttrain_Hang

def _posttrain_reach():
    _posttrain_State.reached = True

def _posttrain_compare(op, a, b):
    truth = {"Eq": lambda: a == b, "NotEq": lambda: a != b, "Lt": lambda: a < b, "LtE": lambda: a <= b,
             "Gt": lambda: a > b, "GtE": lambda: a >= b}[op]()
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        gap = {"Eq": abs(a - b), "NotEq": 1, "Lt": a - b + 1, "LtE": a - b, "Gt": b - a + 1, "GtE": b - a}[op]
        other = {"Eq": 1, "NotEq": abs(a - b), "Lt": b - a, "LtE": b - a + 1, "Gt": a - b, "GtE": a - b + 1}[op]
    else:
        gap = other = 1
    return bool(truth), 0 if truth else gap, other if truth else 0

def _posttrain_atom(value):
    return bool(value), 0 if value else 1, 1 if value else 0

def _posttrain_not(found):
    return not found[0], found[2], found[1]

def _posttrain_all(*parts):
    to_true, to_false = 0, []
    for place, part in enumerate(parts):
        truth, near, other = part()
        to_true, to_false = to_true + near, [*to_false, other]
        if not truth:
            return False, to_true + len(parts) - place - 1, 0
    return True, 0, min(to_false)

def _posttrain_any(*parts):
    return _posttrain_not(_posttrain_all(*((lambda part=part: _posttrain_not(part())) for part in parts)))

def _posttrain_guard(place, wanted, found):
    distance = found[1] if wanted else found[2]
    known = _posttrain_State.nearest[place]
    if known is None or distance < known:
        _posttrain_State.nearest[place] = distance
    return found[0]

def _posttrain_call(function, guards, ticks, *inputs):
    try:
        _posttrain_inspect.signature(function).bind(*inputs)
    except TypeError:
        return _posttrain_json.dumps(["refused", False, []])
    _posttrain_State.left, _posttrain_State.reached, _posttrain_State.nearest = ticks, False, [None] * guards
    try:
        function(*inputs)
        end = "returned"
    except _posttrain_Hang:
        end = "hung"
    except Exception as error:
        end = type(error).__name__
    return _posttrain_json.dumps([end, _posttrain_State.reached, _posttrain_State.nearest])
"""


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A program whose guards around a line are measured."""

    code: str
    guards: int
    """Their number."""
    function: str

    def call(self, inputs: Sequence[Any], ticks: int) -> str:
        """The call with literals, at most `ticks` rounds of loops and calls."""
        return f"{PREFIX}call({', '.join([self.function, str(self.guards), str(ticks), *map(repr, inputs)])})"


@dataclass(frozen=True, slots=True)
class Run:
    """What a call did."""

    end: str
    """``returned``, ``refused`` (other inputs than it takes), ``hung``, or the name of an exception."""
    reached: bool
    nearest: tuple[float | None, ...]
    """The smallest distance of each guard; None where it was not evaluated."""

    @property
    def passed(self) -> int:
        """Leading guards that were satisfied."""
        return next((i for i, distance in enumerate(self.nearest) if distance != 0), len(self.nearest))


def credit(run: Run, how: str = "distance") -> float:
    """1 where the line was reached, 0 where the inputs were refused, else (passed + .999 / (1 + d)) / guards.

    d is the distance of the first guard that is not satisfied; its term is left out where that was not evaluated, and
    with ``passed``. With ``target`` nothing but reaching the line counts.
    """
    if run.reached:
        return 1.0
    if run.end == "refused" or how == "target" or not run.nearest:
        return 0.0
    distance = run.nearest[run.passed] if run.passed < len(run.nearest) else None
    near = 0.999 / (1.0 + max(distance, 0.0)) if how == "distance" and distance is not None else 0.0
    return min(run.passed + near, len(run.nearest) - 0.001) / len(run.nearest)


def run_of(text: Any, guards: int) -> Run:
    """A run from what a call returned; one that cannot be read passed nothing."""
    try:
        end, reached, nearest = json.loads(text)
        distances = [None if own is None or not math.isfinite(own) else float(own) for own in nearest]
    except (TypeError, ValueError, OverflowError, RecursionError):
        return Run("unreadable", False, (None,) * guards)
    distances = distances or [None] * guards
    fine = isinstance(end, str) and isinstance(reached, bool) and len(distances) == guards
    return Run(end, reached, tuple(distances)) if fine else Run("unreadable", False, (None,) * guards)


def instrumented(source: str, function: str, line: int) -> Instrumented:
    """The program with measured guards. Raises `UserError` without the function or a statement on this line of it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"the source cannot be parsed: {error}") from None
    found = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function), None)
    if found is None:
        raise UserError(f"the source has no function '{function}' at its top level")
    if PREFIX in source:
        raise UserError(f"names that begin with {PREFIX} are taken")
    way = _way(found.body, line)
    if way is None:
        raise UserError(f"line {line} of the source begins no statement of the function '{function}'")
    guards = 0
    for node, wanted in way:
        if isinstance(node, ast.If | ast.While):
            node.test = _call("guard", ast.Constant(guards), ast.Constant(wanted), _measured(node.test))
            guards += 1
    _mark(found.body, line)
    for part in ast.walk(found):
        if isinstance(part, ast.For | ast.While | ast.FunctionDef | ast.AsyncFor):
            part.body.insert(0, ast.Expr(_call("tick")))
    code = ast.unparse(ast.fix_missing_locations(tree))
    return Instrumented(f"{HARNESS}\n{code}\n", guards, function)


def _way(body: Sequence[ast.stmt], line: int) -> list[tuple[ast.stmt, bool]] | None:
    """Statements around the first one that begins on a line, outermost first, and which branch it is in."""
    for statement in body:
        if statement.lineno == line:
            return []
        for name in ("body", "orelse", "finalbody"):
            inner = _way(getattr(statement, name, []), line)
            if inner is not None:
                return [(statement, name == "body"), *inner]
        for handler in getattr(statement, "handlers", []):
            inner = _way(handler.body, line)
            if inner is not None:
                return [(statement, True), *inner]
    return None


def _mark(body: list[ast.stmt], line: int) -> bool:
    """Puts a call before the statement; whether it is here."""
    for place, statement in enumerate(body):
        if statement.lineno == line:
            body.insert(place, ast.Expr(_call("reach")))
            return True
        parts = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        if any(_mark(part, line) for part in [*parts, *(h.body for h in getattr(statement, "handlers", []))]):
            return True
    return False


def _measured(test: ast.expr) -> ast.expr:
    """An expression for truth and both distances of a condition, whose operands are evaluated as before."""
    if any(isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom) for node in ast.walk(test)):
        return _call("atom", test)
    match test:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op).__name__ in _OPS:
            return _call("compare", ast.Constant(type(op).__name__), left, right)
        case ast.BoolOp(op=op, values=values):
            parts = [ast.Lambda(args=_NO_ARGUMENTS, body=_measured(value)) for value in values]
            return _call("all" if isinstance(op, ast.And) else "any", *parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _call("not", _measured(operand))
    return _call("atom", test)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=f"{PREFIX}{name}", ctx=ast.Load()), args=list(arguments), keywords=[])


_OPS = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")
_NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
