"""Which lines of a program a call reaches, whether it crashes or hangs, and what stands around each line.

The functions of a file are rewritten: each statement is counted before it begins. A line's parent is the statement that
it is inside of, and its guards are the conditions of the ``if`` and ``while`` statements around it, outermost first.
Calls run in the sandbox, many in one process; one that ends the process, or uses up its time, is known by the calls
after it, which are made again.
"""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from posttrain.errors import UserError
from posttrain.grading.function_calls import called
from posttrain.sandbox import Limits, Pool

PREFIX: Final = "_posttrain_"
_HARNESS: Final = """
import inspect as _posttrain_inspect
import json as _posttrain_json

class _posttrain_Hang(BaseException):
    pass

class _posttrain_State:
    left = 0
    last = 0
    hit = set()

def _posttrain_tick():
    _posttrain_State.left -= 1
    if _posttrain_State.left < 0:
        raise _posttrain_Hang

def _posttrain_hit(line):
    _posttrain_State.last = line
    _posttrain_State.hit.add(line)

def _posttrain_run(function, ticks, *inputs):
    state = _posttrain_State
    try:
        _posttrain_inspect.signature(function).bind(*inputs)
    except TypeError:
        return _posttrain_json.dumps(["refused", 0, []])
    state.left, state.last, state.hit = ticks, 0, set()
    try:
        function(*inputs)
        end = "returned"
    except _posttrain_Hang:
        end = "hung"
    except BaseException as error:
        end = "!" + type(error).__name__
    return _posttrain_json.dumps([end, state.last, sorted(state.hit)])
"""

End = Literal["returned", "refused", "hung", "crashed", "ended"]


@dataclass(frozen=True, slots=True)
class Ran:
    """What one call did."""

    end: End
    """``refused``: other inputs than the function takes; ``ended``: the process ended, also by its limit of memory."""
    error: str = ""
    """The name of the exception of a crash."""
    line: int = 0
    """The last line that was reached; 0 where none is known."""
    lines: frozenset[int] = frozenset()


KINDS: Final[Mapping[str, Any]] = {
    "int": int,
    "float": (int, float),
    "complex": (int, float, complex),
    "bool": bool,
    "str": str,
    "bytes": bytes,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "set": set,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A function whose lines are counted."""

    code: str
    function: str
    parameters: tuple[str, ...]
    text: Literal["str", "bytes", ""]
    """The type of its only parameter, where that is annotated as text or bytes."""
    parents: Mapping[int, int | None]
    """By line of a statement in a function, the line of the statement around it."""
    guards: Mapping[int, str]
    """By line, the conditions around it: ``a==12 not(b>3)``."""
    constants: tuple[Any, ...] = ()
    """Texts and numbers in the source, for edits."""
    kinds: tuple[str, ...] = ()
    """Of each parameter the built-in type that it is annotated with; empty for any other annotation."""

    def call(self, inputs: Sequence[Any], ticks: int) -> str:
        """The call with literals, at most `ticks` rounds of loops and calls."""
        return f"{PREFIX}run({', '.join([self.function, str(ticks), *map(repr, inputs)])})"


def target_of(source: str, function: str) -> Target:
    """The rewritten program. Raises `UserError` for one that cannot be parsed, or has no such function."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"the source cannot be parsed: {error}") from None
    known = ", ".join(node.name for node in tree.body if isinstance(node, ast.FunctionDef)) or "none"
    found = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function), None)
    if found is None:
        raise UserError(f"no function '{function}' at the top level; functions there: {known}")
    if PREFIX in source:
        raise UserError(f"names that begin with {PREFIX} are taken")
    arguments = [*found.args.posonlyargs, *found.args.args]
    annotation = arguments[0].annotation if len(arguments) == 1 else None
    text = annotation.id if isinstance(annotation, ast.Name) and annotation.id in ("str", "bytes") else ""
    kinds = tuple(_kind(own.annotation) for own in arguments)
    literal = [n.value for n in ast.walk(found) if isinstance(n, ast.Constant)]
    constants = tuple({repr(own): own for own in literal if type(own) in (str, int, float, bytes) and own}.values())
    parents: dict[int, int | None] = {}
    guards: dict[int, str] = {}
    for node in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]:
        _map(node.body, None, (), parents, guards)
    for node in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]:
        _count(node.body)
        node.body.insert(0, _statement("tick"))
    code = ast.unparse(ast.fix_missing_locations(tree))
    first, future = ast.parse(code).body, []
    while first and (_is_text(first[0]) or _is_future(first[0])):
        future.append(ast.unparse(first.pop(0)))
    body = ast.unparse(ast.Module(body=first, type_ignores=[]))
    whole = "\n".join([*future, _HARNESS, body, ""])
    names = tuple(a.arg for a in arguments)
    return Target(whole, function, names, text, parents, guards, constants, kinds)  # type: ignore[arg-type]


def fits(given: Sequence[Any], kinds: Sequence[str]) -> bool:
    """Whether literals have the types that parameters are annotated with; a whole number is a float too."""
    return all(not kind or isinstance(own, KINDS[kind]) for own, kind in zip(given, kinds, strict=False))


def _kind(annotation: ast.expr | None) -> str:
    """The built-in type that a parameter is annotated with; of ``list[int]`` the list."""
    own = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return own.id if isinstance(own, ast.Name) and own.id in KINDS else ""


async def run_calls(
    target: Target, given: Sequence[Sequence[Any]], pool: Pool, limits: Limits, ticks: int
) -> list[Ran]:
    """What each call does. Raises `UserError` where the program itself cannot be run."""
    found: list[Ran] = []
    while len(found) < len(given):
        left = given[len(found) :]
        calls = ["1", *(target.call(inputs, ticks) for inputs in left)]
        result, outcomes = await called(target.code, calls, pool, limits)
        if result.outcome == "sandbox_error":
            raise UserError(f"the sandbox failed: {result.explanation}; see posttrain doctor")
        if 0 not in outcomes:
            lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
            why = lines[-1] if lines else f"it ended with {result.outcome}"
            raise UserError(f"the program cannot be run in the sandbox, before any call of a function: {why}")
        done = 0
        while done < len(left) and done + 1 in outcomes:
            found.append(_ran(outcomes[done + 1], target))
            done += 1
        if done < len(left):
            timed = result.outcome in ("timeout_cpu", "timeout_wall")
            if timed and done:  # the time was that of all: alone it may be fast
                continue
            found.append(Ran("hung" if timed else "ended"))
    return found


def _ran(outcome: Any, target: Target) -> Ran:
    """A run from what a call returned; anything else comes from a program that wrote in its place."""
    try:
        end, line, lines = json.loads(outcome[1][1])
        hit = frozenset(own for own in lines if own in target.parents)
    except (TypeError, ValueError, LookupError, RecursionError):
        return Ran("ended")
    if not isinstance(end, str) or type(line) is not int:
        return Ran("ended")
    if end.startswith("!"):
        return Ran("crashed", end[1:], line, hit)
    return Ran(end, "", line, hit) if end in ("returned", "refused", "hung") else Ran("ended")  # type: ignore[arg-type]


def _map(
    body: Sequence[ast.stmt],
    parent: int | None,
    around: tuple[str, ...],
    parents: dict[int, int | None],
    guards: dict[int, str],
) -> None:
    """Fill in parents and guards of the statements of a body. A function inside is one of its own."""
    for node in body:
        if _is_text(node):
            continue
        parents.setdefault(node.lineno, parent if parent != node.lineno else None)
        guards.setdefault(node.lineno, " ".join(around))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for name, inner in _bodies(node):
            more = around
            if isinstance(node, ast.If | ast.While):
                test = ast.unparse(node.test).replace(" ", "") if _is_short(node.test) else ast.unparse(node.test)
                more = (*around, test if name == "body" else f"not({test})")
            _map(inner, node.lineno, more, parents, guards)


def _bodies(node: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The lists of statements in a statement."""
    for name in ("body", "orelse", "finalbody"):
        if getattr(node, name, None):
            yield name, getattr(node, name)
    for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield "part", part.body


def _count(body: list[ast.stmt]) -> None:
    """Puts a call before each statement, and one at the start of each round of a loop."""
    for node in [own for own in body if not _is_text(own)]:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name, inner in list(_bodies(node)):
                _count(inner)
                if name == "body" and isinstance(node, ast.For | ast.While | ast.AsyncFor):
                    inner.insert(0, _statement("tick"))
        body.insert(body.index(node), _statement("hit", ast.Constant(node.lineno)))


def _statement(name: str, *arguments: ast.expr) -> ast.Expr:
    return ast.Expr(ast.Call(func=ast.Name(id=f"{PREFIX}{name}", ctx=ast.Load()), args=list(arguments), keywords=[]))


def _is_short(test: ast.expr) -> bool:
    """Whether a condition has no words whose spaces matter."""
    return not any(
        isinstance(n, ast.BoolOp | ast.Not | ast.In | ast.NotIn | ast.Is | ast.IsNot | ast.Constant)
        and (not isinstance(n, ast.Constant) or isinstance(n.value, str))
        for n in ast.walk(test)
    )


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
