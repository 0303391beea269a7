"""Makes a function of a running program available to other processes: by the name of its file, or by its source.

A function at the top level of an importable file is ``file.py:name`` or ``package.module:name``. A function of a script
or a notebook cannot be found by its module, since ``__main__`` is another module in another process. Its source is
written into a separate file, with its dependencies: imports, helper functions and classes of the same program, and the
current plain values. The file is used only if it defines the same function: the same byte code and the same defaults.
"""

import ast
import copy
import importlib
import inspect
import linecache
import re
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from posttrain.grading.function_place import NotWritable, find_class, find_function, first_line

LONGEST_VALUE = 1_000_000
"""Most characters of a plain value that is written into the file."""
_HEAD = '''"""What the function {name} was when the run began; written by posttrain."""

from __future__ import annotations

'''


def spelling_of(function: Callable[..., Any]) -> str | None:
    """``file.py:name`` or ``package.module:name`` of a function that another process can find.

    None for others, and if the file was changed after its import, so that another function would be found.
    """
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or module.__name__ == "__main__" or not name.isidentifier():
        return None
    file = getattr(module, "__file__", None) or ""
    if getattr(module, name, None) is not function or (file.endswith(".py") and not _is_current(function, file)):
        return None
    if not file.endswith(".py") or "." in module.__name__:
        return f"{module.__name__}:{name}"
    path = Path(file).resolve()
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{name}"


def written(function: Callable[..., Any]) -> tuple[str, str]:
    """A name, and the text of a Python file that defines the function under it. Raises `NotWritable`."""
    inner = inspect.unwrap(function)
    if not isinstance(function, FunctionType) or not isinstance(inner, FunctionType):
        raise NotWritable(f"it is no function that is written with def or lambda, but a {type(inner).__name__}")
    writer = _Writer(inner.__globals__)
    name = "function" if inner.__name__ == "<lambda>" else inner.__name__
    writer.function(name, function)
    text = _HEAD.format(name=name) + writer.text()
    _check_same(text, name, function)
    return name, text


def _is_current(function: Callable[..., Any], file: str) -> bool:
    """Whether the file still contains the function; true if its source cannot be compared."""
    inner = inspect.unwrap(function)
    if not isinstance(inner, FunctionType) or inner.__code__.co_filename != file:
        return True
    linecache.checkcache(file)
    try:
        find_function(inner)
    except NotWritable:
        return False
    return True


def _check_same(text: str, name: str, function: FunctionType) -> None:
    """Raise `NotWritable` unless the text defines the function with the same defaults."""
    module = ModuleType(f"_posttrain_written_{name}")
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    try:
        exec(compile(text, f"<source of {name}>", "exec"), module.__dict__)
        same = _alike(vars(module)[name], function)
    except Exception as error:
        raise NotWritable(f"its source alone does not run: {type(error).__name__}: {error}") from None
    finally:
        del sys.modules[module.__name__]
    if not same:
        raise NotWritable("its source alone gives another function, or other defaults of its parameters")


def _alike(again: Any, function: Any) -> bool:
    """Whether two functions are the same, decorators included."""
    if not isinstance(again, FunctionType) or not isinstance(function, FunctionType):
        return False
    if again.__defaults__ != function.__defaults__ or again.__kwdefaults__ != function.__kwdefaults__:
        return False
    inside, original = getattr(again, "__wrapped__", None), getattr(function, "__wrapped__", None)
    if inside is None and original is None:
        return True  # its code was compared with its definition
    return again.__code__.co_names == function.__code__.co_names and _alike(inside, original)


class _Writer:
    """Collects the parts of a file, each after its dependencies."""

    def __init__(self, program: dict[str, Any]) -> None:
        """`program` are the globals of the function: their definitions are written, anything else is imported."""
        self.parts: dict[str, str] = {}
        self._program = program
        self._home = str(program.get("__name__", "__main__"))
        self._values: dict[str, Any] = {}

    def text(self) -> str:
        """All parts: imports first."""
        imports = [text for text in self.parts.values() if text.startswith(("import ", "from ")) and "=" not in text]
        others = [text for text in self.parts.values() if text not in imports]
        return "\n\n".join(filter(None, ["".join(sorted(set(imports))), *others]))

    def function(self, name: str, function: FunctionType) -> None:
        """Add a function under a name, with its decorators if it is the decorated function."""
        inner = inspect.unwrap(function)
        definition, file = find_function(inner), inner.__code__.co_filename
        if function is inner and not isinstance(definition, ast.Lambda):
            definition.decorator_list = []
        _fix_defaults(definition.args, inner)
        self._values[name] = function
        self._add_names(definition, {**inner.__globals__, **_free_variables(inner)})
        if isinstance(definition, ast.Lambda):
            self.parts[name] = f"{name} = {ast.unparse(definition)}\n"
        else:
            self._define(name, definition, file)

    def value(self, name: str, value: Any) -> None:
        """Add the value of a name. Raises `NotWritable`."""
        if name in self._values:
            if self._values[name] is not value:
                raise NotWritable(f"'{name}' stands for different things in the functions that it uses")
            return
        if isinstance(value, ModuleType):
            self._put(name, value, _import(name, value))
        elif self._home != "__main__" and getattr(sys.modules.get(self._home), name, self) is value:
            self._put(name, value, f"from {self._home} import {name}\n")
        elif isinstance(value, FunctionType) and getattr(inspect.unwrap(value), "__globals__", 0) is self._program:
            self.function(name, value)
        elif isinstance(value, type) and value.__module__ == self._home:
            definition, file = find_class(value)
            self._values[name] = value
            self._add_names(definition, self._program)
            self._define(name, definition, file)
        else:
            self._put(name, value, _imported(name, value) or _plain(name, value))

    def _put(self, name: str, value: Any, text: str) -> None:
        self._values[name], self.parts[name] = value, text

    def _define(self, name: str, definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, file: str) -> None:
        also = "" if name == definition.name else f"\n{name} = {definition.name}\n"
        self.parts[name] = _text(definition, file) + also

    def _add_names(self, definition: ast.AST, known: Mapping[str, Any]) -> None:
        """Add the names that a definition refers to; those in annotations, which are not run, only if possible."""
        needed = _names(_Bare().visit(copy.deepcopy(definition)))
        for name in sorted(_names(definition)):
            if name == "__file__":
                raise NotWritable("it uses __file__, which is another one in a file of its own")
            if name not in known or (name.startswith("__") and name.endswith("__")):
                continue  # a built-in, or an undefined name, which fails there as it would here
            try:
                self.value(name, known[name])
            except NotWritable:
                if name in needed:
                    raise
        for full in _submodules(definition, known):
            self.parts.setdefault(f"import {full}", f"import {full}\n")


class _Bare(ast.NodeTransformer):
    """Removes annotations."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """A parameter without its type."""
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function without the type of its result."""
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """An asynchronous function without the type of its result."""
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """An assignment without its type."""
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _submodules(definition: ast.AST, known: Mapping[str, Any]) -> Iterator[str]:
    """Submodules that a definition uses as attributes, like ``xml.etree.ElementTree``, which must be imported too."""
    for node in ast.walk(definition):
        if not isinstance(node, ast.Attribute):
            continue
        names, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            names, inner = [inner.attr, *names], inner.value
        root = known.get(inner.id) if isinstance(inner, ast.Name) else None
        if isinstance(root, ModuleType) and (full := ".".join([root.__name__, *names])) in sys.modules:
            yield full


def _names(definition: ast.AST) -> set[str]:
    """Global names that a definition refers to."""
    statement = ast.Expr(definition) if isinstance(definition, ast.Lambda) else definition
    module = ast.fix_missing_locations(ast.Module([copy.deepcopy(statement)], []))  # type: ignore[list-item]

    def walk(table: symtable.SymbolTable) -> Iterator[str]:
        at_top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (at_top or symbol.is_global()):
                yield symbol.get_name()
        for child in table.get_children():
            yield from walk(child)

    return set(walk(symtable.symtable(ast.unparse(module), "<source>", "exec")))


def _fix_defaults(arguments: ast.arguments, function: FunctionType) -> None:
    """Replace plain defaults by the values that they had when the function was defined."""
    values = function.__defaults__ or ()
    named = function.__kwdefaults__ or {}
    arguments.defaults = [_fixed(*pair) for pair in zip(arguments.defaults, values, strict=True)]
    arguments.kw_defaults = [
        None if written is None else _fixed(written, named[parameter.arg])
        for parameter, written in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]


def _fixed(expression: ast.expr, value: Any) -> ast.expr:
    try:
        text = _plain("default", value).partition(" = ")[2]
    except NotWritable:
        return expression
    if isinstance(expression, ast.Constant) or isinstance(value, re.Pattern):
        return expression
    return ast.parse(text.strip(), mode="eval").body


def _free_variables(function: FunctionType) -> dict[str, Any]:
    """The variables of a closure, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    try:
        return {name: cell.cell_contents for name, cell in cells}
    except ValueError:
        raise NotWritable("it uses a variable that has no value yet") from None


def _text(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, file: str) -> str:
    """The source of a definition as is, or as Python unparses it if the source alone does not parse to it."""
    lines = linecache.getlines(file)[first_line(definition) - 1 : definition.end_lineno]
    text = textwrap.dedent("".join(lines))
    try:
        if ast.dump(ast.parse(text)) == ast.dump(ast.Module([definition], [])):
            return text if text.endswith("\n") else f"{text}\n"
    except SyntaxError:
        pass
    return ast.unparse(definition) + "\n"


def _import(name: str, module: ModuleType) -> str:
    """The statement that imports a module under a name."""
    full = module.__name__
    if full == "__main__":
        raise NotWritable(f"it uses the module of the program itself as '{name}'")
    return f"import {full}\n" if full == name else f"import {full} as {name}\n"


def _imported(name: str, value: Any) -> str:
    """The statement that imports a function, class or constant of another module; empty if there is none."""
    home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(home, str) or home == "__main__" or not own.isidentifier():
        return ""
    try:
        found = getattr(importlib.import_module(home), own, None)
    except ImportError:
        return ""
    return f"from {home} import {own}{'' if own == name else f' as {name}'}\n" if found is value else ""


def _plain(name: str, value: Any) -> str:
    """An assignment of a plain value or of a regular expression. Raises `NotWritable`."""
    if isinstance(value, re.Pattern):
        return f"{name} = __import__('re').compile({value.pattern!r}, {value.flags})\n"
    text = repr(value)
    if len(text) <= LONGEST_VALUE:
        try:
            again = ast.literal_eval(text)
            if type(again) is type(value) and again == value:
                return f"{name} = {text}\n"
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            pass
    size = f" of {len(text):,} characters" if len(text) > LONGEST_VALUE else ""
    raise NotWritable(f"it uses '{name}' (a value of type {type(value).__name__}{size}), which no source can hold")
