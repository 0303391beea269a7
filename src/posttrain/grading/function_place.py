"""Finds the source of a function or class of a running program, if it still compiles to the code that runs."""

import ast
import copy
import inspect
import linecache
import sys
from types import CodeType, FunctionType
from typing import Any

_FUTURE = 0x01FF0000
"""Flags of code that ``from __future__`` sets."""
_SAME = (
    *("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"),
)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class NotWritable(Exception):
    """The function cannot be written into a file; the message is the reason."""


def find_function(function: FunctionType) -> Definition:
    """The definition of a function. Raises `NotWritable` if there is no source, or only that of another function."""
    code = function.__code__
    for refresh in (False, True):
        tree = _tree(code.co_filename, function.__globals__, refresh=refresh)
        found = [node for node in ast.walk(tree) if isinstance(node, Definition) and _holds(node, code)]
        if found and _gives(tree, code):
            return copy.deepcopy(min(found, key=_size))
    raise NotWritable("its source cannot be found, or was changed after it was read")


def find_class(cls: type) -> tuple[ast.ClassDef, str]:
    """The definition of a class, and its file. Classes of a notebook are found by their methods."""
    methods = [inspect.unwrap(member) for member in vars(cls).values() if callable(member)]
    codes = [m.__code__ for m in methods if isinstance(m, FunctionType) and m.__module__ == cls.__module__]
    files = [getattr(sys.modules.get(cls.__module__), "__file__", None), *(code.co_filename for code in codes)]
    for file in dict.fromkeys(filter(None, files)):
        tree = _tree(file, None)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                first, last = first_line(node), node.end_lineno or 0
                own = [code for code in codes if code.co_filename == file]
                if all(first <= code.co_firstlineno <= last and _gives(tree, code) for code in own):
                    return node, file
    raise NotWritable(f"the source of the class {cls.__name__} cannot be found")


def _tree(file: str, names: dict[str, Any] | None, *, refresh: bool = False) -> ast.Module:
    """The source of a file or of a cell. Raises `NotWritable`."""
    if refresh:
        linecache.checkcache(file)
    lines = linecache.getlines(file, names)
    try:
        return ast.parse("".join(lines))
    except SyntaxError:
        raise NotWritable("its source cannot be read") from None


def first_line(node: ast.AST) -> int:
    """The first line of a definition, as Python counts it: that of its first decorator."""
    decorators = getattr(node, "decorator_list", [])
    line: int = (decorators[0] if decorators else node).lineno  # type: ignore[attr-defined,union-attr,unused-ignore]
    return line


def _holds(node: Definition, code: CodeType) -> bool:
    """Whether a definition is at the position of the code. Several lambdas of one line differ in their columns."""
    if first_line(node) != code.co_firstlineno or getattr(node, "name", "<lambda>") != code.co_name:
        return False
    if not isinstance(node, ast.Lambda):
        return True
    body = node.body
    places = [(line, column) for line, _, column, _ in code.co_positions() if line is not None and column is not None]
    inside = [at for at in places if at != (code.co_firstlineno, 0)]  # without the first instruction of all code
    return all((body.lineno, body.col_offset) <= at < (body.end_lineno, body.end_col_offset) for at in inside)


def _size(node: ast.AST) -> tuple[int, int]:
    """Number of lines and columns of a node."""
    lines: int = node.end_lineno - node.lineno  # type: ignore[attr-defined]
    columns: int = node.end_col_offset - node.col_offset  # type: ignore[attr-defined]
    return lines, columns


def _gives(tree: ast.Module, code: CodeType) -> bool:
    """Whether the source of a file or cell, compiled, contains this code."""
    flags = (code.co_flags & _FUTURE) | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    waiting = [compile(tree, code.co_filename, "exec", flags=flags, dont_inherit=True)]
    while waiting:
        one = waiting.pop()
        if one.co_name == code.co_name and one.co_firstlineno == code.co_firstlineno and _same(one, code):
            return True
        waiting += _inside(one)
    return False


def _inside(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _same(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects are the same except for their position."""
    if any(getattr(one, name) != getattr(other, name) for name in _SAME):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        _same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else type(a) is type(b) and a == b
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )
