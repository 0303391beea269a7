"""What a Python program defines, calls and names, by its text: run in workers that can be killed, and by no means run.

Only what the entry point reaches counts: its own body, and those of functions of the program that it names.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

REFLECTION: Final = frozenset(
    {
        *("getattr", "setattr", "delattr", "eval", "exec", "compile", "globals", "locals", "vars", "dir", "open"),
        *("input", "breakpoint", "memoryview", "object", "super", "type", "gc", "ctypes", "importlib"),
    }
)
"""Names by which a program can reach what it does not name."""


def names_fault(text: str, rule: Mapping[str, Any]) -> str:
    """Why a program does not keep to a rule (`posttrain.components.rewards.uses`); empty where it does."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"no Python: {type(error).__name__}"
    if fault := _forbidden(tree, rule):
        return fault
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if rule["function"] not in functions:
        return f"no function {rule['function']}"
    reached = _reached(functions, rule["function"])
    if rule["define"]:
        marked = {name for name, node in functions.items() if _decorators(node) & set(rule["define"])}
        if not marked:
            return f"no function with the decorator {' or '.join(rule['define'])}"
        launched = {name for node in reached for name in _called(node)}
        if not marked & launched:
            return f"{rule['function']} calls no function with that decorator"
    called = {name for node in reached for name in _called(node)}
    missing = [name for name in rule["call"] if name not in called]
    return f"{rule['function']} does not call {', '.join(missing)}" if missing else ""


def _forbidden(tree: ast.Module, rule: Mapping[str, Any]) -> str:
    """A name that must not be there, or an import."""
    forbidden = REFLECTION | set(rule["forbid"])
    for node in ast.walk(tree):
        for module in _imported(node):
            if module not in rule["imports"]:
                return f"it imports {module[:60]}"
        for name in _named(node):
            if name in forbidden:
                return f"it names {name[:60]}"
            if name.startswith("_") and name != "_":
                return f"it names {name[:60]}, which begins with _"
        if isinstance(node, ast.Attribute) and (chain := _dotted(node)) in forbidden:
            return f"it names {chain}"
    return ""


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return []


def _named(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str() as name):
            return [name]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.alias(name=name, asname=other):
            return [*name.split("."), *([other] if other else [])]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return list(names)
        case ast.Constant(value=str() as text) if text.isidentifier():
            return [text]
    return []


def _decorators(node: ast.FunctionDef) -> set[str]:
    found = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    return {_dotted(item) for item in found}


def _reached(functions: Mapping[str, ast.FunctionDef], first: str) -> list[ast.FunctionDef]:
    """The entry point, and functions that it calls, or that those call."""
    found, waiting = {first}, [first]
    while waiting:
        for name in _called(functions[waiting.pop()]):
            if name in functions and name not in found:
                found.add(name)
                waiting.append(name)
    return [functions[name] for name in functions if name in found]


def _called(node: ast.FunctionDef) -> set[str]:
    """Names of what is called: ``k`` of ``k(x)`` and of ``k[grid](x)``, ``tl.load`` of ``tl.load(x)``."""
    found = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Call):
            inner = child.func.value if isinstance(child.func, ast.Subscript) else child.func
            found.add(_dotted(inner))
    return found


def _dotted(node: ast.expr) -> str:
    """``tl.load``; empty for what is no name."""
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def open_rules(argument: Any) -> Callable[[Mapping[str, Any]], str]:
    """In a worker: why a text does not keep to a rule."""
    return lambda call: names_fault(call["text"], call["rule"])


def open_toy(argument: Any) -> Callable[[Sequence[str]], list[str]]:
    """In a worker: why the kernels of each text cannot be compiled in the toy language."""
    from posttrain.grading.toy_kernels import refusal

    def answer(texts: Sequence[str]) -> list[str]:
        found = []
        for text in texts:
            try:
                found.append(refusal(ast.parse(text)))
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                found.append(f"no Python: {type(error).__name__}")
        return found

    return answer
