"""Imports each module with nothing else of the package loaded, and loads once what several begin with.

    echo '["package.a", "package.b.c"]' | python -m tests.structure.first_imports

Prints what failed, as JSON by module. An import of ``a.b.c`` loads ``a``, then ``a.b``, then what ``a.b.c`` imports at
its top, in order. After that much all modules that begin alike are in one state: each of them is imported from there,
and what it loaded is forgotten again. A module that one of these first imports loads is in a circle with it, so it
starts without them. Libraries stay loaded: a circle is made of the package's own modules.
"""

import ast
import contextlib
import importlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path


class FirstImports:
    """Imports of modules of one package, each the first; `failed` has why one could not be imported, by module."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.package = modules[0].partition(".")[0]
        self.children = defaultdict[str, list[str]](list)
        for module in modules:
            if "." in module:
                self.children[module.rpartition(".")[0]].append(module)
        self.failed = dict[str, str]()
        self.executed = 0
        """Modules of the package that were run, for all imports together."""

    def run(self, module: str) -> None:
        """Import a module from the present state, and every module in it from the state after that."""
        with self._forgotten():
            if not self._imported(module):
                return
            inside = self.children.get(module, [])
            for child in inside:
                if child in self.children:
                    self.run(child)
            leaves = {child: begin(child) for child in inside if child not in self.children}
            self._alike(leaves, 0)

    def _alike(self, begins: dict[str, list[str]], depth: int) -> None:
        """Import modules from the state after the first `depth` of what each begins with."""
        groups = defaultdict[str, dict[str, list[str]]](dict)
        for module, imports in begins.items():
            groups[imports[depth] if depth < len(imports) else ""][module] = imports
        for first, group in groups.items():
            alone = set(group)
            if first and len(group) > 1:
                with self._forgotten(), contextlib.suppress(Exception):
                    importlib.import_module(first)
                    alone &= sys.modules.keys()
                    self._alike({module: group[module] for module in group if module not in alone}, depth + 1)
            for module in alone:
                with self._forgotten():
                    self._imported(module)

    def _imported(self, module: str) -> bool:
        """Whether a module can be imported."""
        try:
            importlib.import_module(module)
        except BaseException as error:
            self.failed[module] = f"{type(error).__name__}: {error}"
        return module not in self.failed

    @contextlib.contextmanager
    def _forgotten(self) -> Iterator[None]:
        """Whatever of the package is loaded inside is not loaded after it."""
        before = set(sys.modules)
        try:
            yield
        finally:
            for name in [name for name in sys.modules if name not in before]:
                if name.partition(".")[0] == self.package:
                    self.executed += 1
                    parent, _, child = name.rpartition(".")
                    del sys.modules[name]
                    if parent in before:
                        vars(sys.modules[parent]).pop(child, None)


def begin(module: str) -> list[str]:
    """The modules of the package that a module imports at its top, in order, up to the first other statement.

    The package around it is loaded.
    """
    parent, _, name = module.rpartition(".")
    paths = [Path(folder) / f"{name}.py" for folder in sys.modules[parent].__path__]
    names = list[str]()
    for node in ast.parse(next(filter(Path.exists, paths)).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            break
    return [name for name in names if name.partition(".")[0] == module.partition(".")[0]]


if __name__ == "__main__":
    given = json.load(sys.stdin)
    imports = FirstImports(given)
    imports.run(imports.package)
    print(json.dumps(imports.failed))
    print(f"{len(given)} modules, {imports.executed} were run", file=sys.stderr)
