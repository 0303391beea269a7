"""What a package imports, read from its source, and what in that breaks the laws of its structure.

    python -m tests.structure.package [FOLDER]      figures about a package, ours unless another one is named

Every import counts: at the top of a module, inside a function, for type checking only, and by the name of a module in
a string (``"package.module:function"``). Who imports a submodule runs the `__init__` of the packages around it, and
so depends on them too, unless it is inside of them itself: otherwise every package whose `__init__` imports one of its
modules would be a circle.
"""

import ast
import contextlib
import gc
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

CONTROL = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
NAMING = (ast.Import, ast.ImportFrom, ast.Constant)
DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection meanwhile: it goes through all trees again and again, for longer than it takes to parse."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Package:
    """A package in a folder, read and never run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.files = {self._module(file): file for file in sorted(folder.rglob("*.py"))}

    def _module(self, file: Path) -> str:
        parts = file.relative_to(self.folder.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def trees(self) -> Mapping[str, ast.Module]:
        """By module: its source, parsed."""
        with uncollected():
            return {module: ast.parse(file.read_text(encoding="utf-8")) for module, file in self.files.items()}

    @cached_property
    def imports(self) -> Mapping[str, frozenset[str]]:
        """By module: the modules of the package that it depends on."""
        return {module: frozenset(self._imports(module)) for module in self.files}

    def _imports(self, module: str) -> Iterator[str]:
        for node in ast.walk(self.trees[module]):
            for name in self._named(module, node) if isinstance(node, NAMING) else ():
                around = [package for package in above(name) if not inside(module, package)]
                yield from {name, *around} - {module}

    def _named(self, module: str, node: ast.AST) -> list[str]:
        """Modules of the package that a node names."""
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names if alias.name in self.files]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} line {node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            return [name if name in self.files else str(node.module) for name in names if inside(name, self.name)]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and inside(node.value, self.name):
            name = node.value.partition(":")[0]
            return [name] if name in self.files and name != self.name else []
        return []

    @property
    def entries(self) -> list[str]:
        """What is at the top level of the package, except for what Python and packaging want there."""
        found = (path.name for path in self.folder.iterdir())
        return sorted(name for name in found if not name.startswith("__") and name != "py.typed")


def inside(module: str, *packages: str) -> bool:
    """Whether a module is one of these packages or in one of them."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def above(module: str) -> list[str]:
    """The packages around a module, the innermost first."""
    parts = module.split(".")
    return [".".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1)]


def circles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Modules that import one another in a circle: strongly connected components of more than one, largest first.

    Tarjan 1972, SIAM Journal on Computing 1(2).
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in imports.get(module, ()):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            at = stack.index(module)
            found.append(sorted(stack[at:]))
            del stack[at:]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 4 * len(imports) + 1000))
    try:
        for module in imports:
            if module not in number:
                visit(module)
    finally:
        sys.setrecursionlimit(limit)
    return sorted((circle for circle in found if len(circle) > 1), key=len, reverse=True)


def entangled(package: Package) -> list[str]:
    """Modules that are in a circle with packages around them, which an import of them runs before; in order.

    Any other module can be imported before everything else if what it imports can: nothing that it needs waits for it.
    The top package is left out, since it imports nothing when it is run.
    """
    imports = {module: {*imported, *above(module)} - {package.name} for module, imported in package.imports.items()}
    return sorted(module for circle in circles({**imports, package.name: ()}) for module in circle)


def part_of(module: str) -> str:
    """What a module belongs to in the table of layers: ``runs``, ``components.rewards``, ``components.rewards.*``."""
    first, *rest = module.split(".")
    if not rest:
        return first
    return ".".join(["components", rest[1], *"*"[: len(rest) - 2]]) if rest[0] == "components" and rest[1:] else rest[0]


def forbidden(package: Package, layers: Mapping[str, frozenset[str]]) -> list[str]:
    """Imports that no row of the table allows, and modules that it does not name."""
    wrong = []
    for module, imported in package.imports.items():
        part = part_of(module)
        if part not in layers:
            wrong.append(f"{module}: the table of layers has no row '{part}'")
            continue
        others = [name for name in sorted(imported) if part_of(name) != part]
        wrong += [f"{module} imports {name}" for name in others if part_of(name) not in layers[part]]
    return wrong


def foreign_members(package: Package) -> list[str]:
    """Families that import members or helpers of other families."""

    def family_of(module: str) -> str:
        part = part_of(module)
        return part.split(".")[1] if part.startswith("components.") else ""

    return [
        f"{module} imports {name}"
        for module, imported in package.imports.items()
        for name in sorted(imported)
        if family_of(module) and part_of(name).endswith(".*") and family_of(name) != family_of(module)
    ]


def upwards(layers: Mapping[str, frozenset[str]]) -> list[str]:
    """Rows of a table that allow what stands below them in it: then layers could be a circle."""
    order = list(layers)
    return [
        f"{part} may import {other}"
        for part, allowed in layers.items()
        for other in sorted(allowed)
        if other not in order or order.index(other) >= order.index(part)
    ]


def crowded(package: Package, named: Iterable[str], most: int) -> list[str]:
    """Entries at the top level that the table does not name, and more of them than there may be."""
    wrong = [f"'{name}' is not in the table" for name in package.entries if name.removesuffix(".py") not in named]
    if len(package.entries) > most:
        wrong.append(f"{len(package.entries)} entries at the top level; at most {most}")
    return wrong


def oversized(package: Package, file_lines: int, function_lines: int, nesting: int) -> list[str]:
    """Files and functions that are too long, and control flow that is nested too deeply."""
    wrong = []
    for module, file in package.files.items():
        length = len(file.read_text().splitlines())
        if length > file_lines:
            wrong.append(f"{file} has {length} lines; at most {file_lines}")
        for node in statements(package.trees[module]):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            where, length = f"{file}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1
            if length > function_lines:
                wrong.append(f"{where} has {length} lines; at most {function_lines}")
            if (deepest := max(depths(node))) > nesting:
                wrong.append(f"{where} is nested {deepest} deep; at most {nesting}")
    return wrong


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it but expressions, which hold no statements."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield from statements(child)


def depths(node: ast.AST, depth: int = 0) -> Iterator[int]:
    """Depths of control flow at statements below: an ``elif`` is as deep as its ``if``, a definition counts alone."""
    yield depth
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*DEFINITION, ast.expr)):
            is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
            yield from depths(child, depth + (isinstance(child, CONTROL) and not is_elif))


def budgets(guide: Path) -> dict[str, int]:
    """The limits that the guide for contributors states; what is not there cannot be enforced, and is an error."""
    text = " ".join(guide.read_text().split())
    stated = {
        "file_lines": r"Files have at most (\d+) lines",
        "function_lines": r"functions at most (\d+) lines",
        "nesting": r"nested at most (\d+) deep",
        "entries": r"at most (\d+) entries at the top level",
        "fields": r"A component has at most (\d+) fields",
        "other_fields": r"at most (\d+) elsewhere",
    }
    found = {name: re.findall(pattern, text) for name, pattern in stated.items()}
    assert all(len(numbers) == 1 for numbers in found.values()), f"{guide} must state each limit once; it has {found}"
    return {name: int(numbers[0]) for name, numbers in found.items()}


def main(arguments: Sequence[str]) -> None:
    """Print figures about a package."""
    here = Path(__file__).parents[2] / "src" / "posttrain"
    package = Package(Path(arguments[0]) if arguments else here)
    found = circles(package.imports)
    print(f"{len(package.files)} modules, {len(package.entries)} entries at the top level")
    print(f"{len(found)} import circles")
    for circle in found:
        packages = sorted({".".join(module.split(".")[:2]) for module in circle})
        print(f"  {len(circle)} modules in {len(packages)} packages: {', '.join(circle)}")


if __name__ == "__main__":
    main(sys.argv[1:])
