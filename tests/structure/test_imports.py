"""The shape of the house: imports point one way, the core is light, files and functions stay small.

types, component, errors  <-  contracts of the families  <-  members  <-  recipes  <-  cli
"""

import ast
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import posttrain
from tests.conformance._members import contracts

SOURCE = Path(posttrain.__file__).parent
FOUNDATION = {"posttrain.signals", "posttrain.types", "posttrain.component", "posttrain.errors"}
FAMILIES = tuple(contract.__module__ for contract in contracts())
HEAVY = ("torch", "transformers", "datasets", "peft", "reasoning_gym")
"""Not to be imported by reading a recipe."""
HOMES = {
    "posttrain.components.optimizers": ("posttrain.training",),
    "posttrain.components.schedules": ("posttrain.training",),
}
"""Packages that have members of a family as their defaults."""
MAX_FILE, MAX_FUNCTION, MAX_NESTING = 500, 80, 4

NEEDS = {"posttrain.kernels._triton": "triton"}
"""Modules that are only for where something is installed that nothing else asks for."""
MODULES = tuple(sorted(m.name for m in pkgutil.walk_packages(posttrain.__path__, "posttrain.")))


def every_module(check: Callable[[str], None]) -> Callable[[], None]:
    """One test of all modules that names each that fails: to find thousands of tests takes longer than to run them."""

    def test() -> None:
        failed = {}
        for module in MODULES:
            try:
                check(module)
            except Exception as error:
                failed[module] = f"{type(error).__name__}: {error}"
        assert not failed, "\n".join(f"{module}: {why}" for module, why in failed.items())

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


def file_of(module: str) -> Path:
    path = SOURCE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(file_of(module).read_text())


@cache
def imports_of(module: str) -> frozenset[str]:
    """Modules of the package that a module imports: at its top, in functions, and for type checking alike."""
    found = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} line {node.lineno}: relative import"
            found |= {str(node.module)}
            found |= {f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in MODULES}
    return frozenset(name for name in found if name.startswith("posttrain"))


def family_of(module: str) -> str | None:
    """The family that a module is a member or helper of; None for contracts and everything else."""
    return next((family for family in FAMILIES if module.startswith(f"{family}.")), None)


def shared(module: str, family: str) -> bool:
    """Whether a module in a family's folder is no member, but something that members share."""
    name = module.removeprefix(f"{family}.").partition(".")[0]
    return name.startswith("_") or name in getattr(importlib.import_module(family), "SHARED", ())


def inside(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def run_python(code: str) -> None:
    """Run code in an interpreter of its own; what it exits with is why it failed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr.strip()


@every_module
def test_imports_cleanly(module: str) -> None:
    if module not in NEEDS or importlib.util.find_spec(NEEDS[module]):
        importlib.import_module(module)


@pytest.mark.slow
def test_every_module_imports_first() -> None:
    """With nothing else of the package loaded: a circular import shows only from one of its ends."""
    run_python(
        "import importlib, sys\n"
        f"for module in {[module for module in MODULES if module not in NEEDS]!r}:\n"
        "    for loaded in [name for name in sys.modules if name.split('.')[0] == 'posttrain']:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(module)\n"
    )


@pytest.mark.parametrize("module", sorted(FOUNDATION))
def test_the_foundation_stands_on_nothing(module: str) -> None:
    assert imports_of(module) <= FOUNDATION


@every_module
def test_families_know_contracts_of_other_families_only(module: str) -> None:
    own = family_of(module) or module
    if own in FAMILIES:
        others = {name for name in imports_of(module) if family_of(name) not in (None, own)}
        assert not others, f"{module} imports {others}"


@every_module
def test_members_are_known_to_recipes_and_commands_only(module: str) -> None:
    """A method is one file and no branch elsewhere. A package may have its own families' members as defaults."""
    if inside(module, "posttrain.recipe", "posttrain.methods", "posttrain.settings", "posttrain.cli"):
        return
    for name in imports_of(module):
        family = family_of(name)
        if family is not None and not shared(name, family):
            assert inside(module, family, *HOMES.get(family, ())), f"{module} imports {name}, a member of {family}"


@every_module
def test_nothing_below_knows_recipes_or_the_command_line(module: str) -> None:
    if family_of(module) or module in FAMILIES or module in FOUNDATION:
        above = {
            name
            for name in imports_of(module)
            if inside(name, "posttrain.methods", "posttrain.settings", "posttrain.cli")
        }
        assert not above, f"{module} imports {above}"


@every_module
def test_nothing_but_the_command_line_knows_the_command_line(module: str) -> None:
    if not inside(module, "posttrain.cli", "posttrain.__main__"):
        assert not any(inside(name, "posttrain.cli") for name in imports_of(module))


def may_be_heavy(module: str) -> bool:
    """Whether a module may import torch at its top: policies, kernels, the learner's machinery, and private helpers."""
    parts = module.split(".")
    light_training = {"settings"}
    return (
        any(part.startswith("_") for part in parts)
        or parts[1] in ("policies", "kernels")
        or (parts[1] == "training" and len(parts) > 2 and parts[2] not in light_training)
    )


def test_the_core_imports_without_torch() -> None:
    """Recipes, components, rewards, statistics, reports and commands are read in a fraction of a second."""
    light = [module for module in MODULES if not may_be_heavy(module)]
    run_python(
        "import importlib, sys\n"
        f"for module in {light!r}:\n"
        "    importlib.import_module(module)\n"
        f"    heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    if heavy: sys.exit(f'importing {module} imports {heavy}')\n"
    )


def test_files_are_short() -> None:
    sizes = {str(file.relative_to(SOURCE)): len(file.read_text().splitlines()) for file in SOURCE.rglob("*.py")}
    assert not {file: size for file, size in sizes.items() if size > MAX_FILE}


@every_module
def test_functions_are_short_and_flat(module: str) -> None:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            where = f"{file_of(module).relative_to(SOURCE.parent)}:{node.lineno} {node.name}"
            assert node.end_lineno - node.lineno < MAX_FUNCTION, f"{where} is too long"
            assert max(depths(node)) <= MAX_NESTING, f"{where} is nested too deeply"


CONTROL = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def depths(node: ast.AST, depth: int = 0) -> Iterator[int]:
    """Depth of control flow at every node below; an ``elif`` is as deep as its ``if``, a definition is judged alone."""
    yield depth
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, DEFINITION):
            is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
            yield from depths(child, depth + (isinstance(child, CONTROL) and not is_elif))


def test_depth_is_counted_as_a_reader_counts_it() -> None:
    code = "def f():\n if a:\n  pass\n elif b:\n  for x in y:\n   with z:\n    pass\n"
    assert max(depths(ast.parse(code).body[0])) == 3
