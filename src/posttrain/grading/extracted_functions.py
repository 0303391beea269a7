"""Whether a Python text is an "extract function" refactoring of another: three checks, made in a worker.

The text of a model can be built to exhaust a parser, so `open_checks` is called by `posttrain.grading.workers`.

    syntax      the text parses
    names       it compiles, the function that is refactored is defined, every global name is defined in the text or
                built in, and calls of the text's functions have as many arguments as these take
    extraction  it has a function that the original has not, called from the refactored function, that holds statements
                which the refactored function had and has no more

A statement is moved where its syntax tree is found in the new function; a value that was computed and assigned may be
returned there.
"""

import ast
import builtins
import symtable
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

CHECKS: Final = ("syntax", "names", "extraction")
BUILT_IN: Final = frozenset(dir(builtins))
Definition = ast.FunctionDef | ast.AsyncFunctionDef
PARSERS: Final = ("python", "tree_sitter")


def open_checks(argument: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], dict[str, bool]]:
    """In a worker: returns the checks; `argument` has the ``parser`` of the first one."""
    warnings.simplefilter("ignore")
    parses = _tree_sitter() if argument["parser"] == "tree_sitter" else _python

    def checks(call: Mapping[str, Any]) -> dict[str, bool]:
        text, source, function = call["text"], call["source"], call["function"]
        names = compiles(text, function)
        return {
            "syntax": parses(text),
            "names": names,
            "extraction": _python(text) and is_extraction(source, text, function),
        }

    return checks


def _python(text: str) -> bool:
    return _parsed(text) is not None


def _tree_sitter() -> Callable[[str], bool]:
    """Whether tree-sitter finds no error and misses nothing."""
    import tree_sitter_python
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_python.language()))
    return lambda text: not parser.parse(text.encode("utf-8", "replace")).root_node.has_error


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def compiles(text: str, function: str) -> bool:
    """Whether it compiles and all names resolve, that of the function included."""
    try:
        compile(text, "refactored.py", "exec", dont_inherit=True)
        table = symtable.symtable(text, "refactored.py", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    defined = {name.get_name() for name in table.get_symbols() if name.is_assigned() or name.is_imported()}
    for inner in _tables(table):
        defined |= {name.get_name() for name in inner.get_symbols() if name.is_declared_global() and name.is_assigned()}
    used = {
        name.get_name()
        for inner in (table, *_tables(table))
        for name in inner.get_symbols()
        if name.is_referenced() and (inner is table or name.is_global())
    }
    return function in defined and used <= defined | BUILT_IN and _calls_fit(text)


def _calls_fit(text: str) -> bool:
    """Whether plain calls of the text's functions have as many arguments as these take."""
    tree, functions = _parsed(text), functions_of(text)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in functions:
            continue
        taken = functions[node.func.id].args
        known = {one.arg for one in (*taken.args, *taken.kwonlyargs)}
        if taken.vararg or taken.kwarg or taken.posonlyargs or any(isinstance(one, ast.Starred) for one in node.args):
            continue
        named = [word.arg for word in node.keywords]
        given = {one.arg for one in taken.args[: len(node.args)]}
        optional = {one.arg for one in taken.args[len(taken.args) - len(taken.defaults) :]}
        optional |= {
            one.arg for one, value in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if value is not None
        }
        if None in named:
            continue
        words = {name for name in named if name is not None}
        if len(node.args) > len(taken.args) or words & given or words - known or known - given - words - optional:
            return False
    return True


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _tables(child)


def is_extraction(source: str, text: str, function: str) -> bool:
    """Whether a new function, called from the refactored one, holds statements that this one lost."""
    before, after = functions_of(source), functions_of(text)
    old, now = before.get(function), after.get(function)
    if old is None or now is None:
        return False
    lost = statements(old) - statements(now)
    called = {node.func.id for node in ast.walk(now) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    new = (definition for name, definition in after.items() if name not in before and name in called)
    return any(not lost.keys().isdisjoint(statements(definition)) for definition in new)


def functions_of(text: str) -> dict[str, Definition]:
    """The functions of a module, the last of each name."""
    tree = _parsed(text)
    found = tree.body if tree is not None else []
    return {node.name: node for node in found if isinstance(node, Definition)}


def statements(definition: Definition) -> Counter[str]:
    """The syntax trees of a function's statements, at any depth; the last value that is computed counts alone too."""
    found: Counter[str] = Counter()
    for node in ast.walk(definition):
        if isinstance(node, ast.stmt) and node is not definition and not isinstance(node, ast.Pass):
            found[_dump(node)] += 1
        if isinstance(node, ast.Return | ast.Assign) and isinstance(node.value, ast.BinOp | ast.Call | ast.Compare):
            found[f"value:{ast.dump(node.value)}"] += 1
    return found


def _dump(node: ast.stmt) -> str:
    """Of a statement that holds others the head alone, as its body has statements of its own."""
    children = list(ast.iter_child_nodes(node))
    if not any(isinstance(child, ast.stmt | ast.ExceptHandler) for child in children):
        return ast.dump(node)
    return f"{type(node).__name__}:{[ast.dump(child) for child in children if isinstance(child, ast.expr)]}"
