"""The structure of the package: no import circles, layers that import downwards, few top-level entries, a light core,
and short files and functions.

The table of layers is in `tests.structure.layers`, the limits of sizes in ``AGENTS.md``. Each law is shown to fail on a
small package that breaks it.
"""

import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import posttrain
from tests.structure.layers import table
from tests.structure.package import (
    Package,
    budgets,
    circles,
    crowded,
    entangled,
    forbidden,
    foreign_members,
    inside,
    oversized,
    upwards,
)

SOURCE = Path(posttrain.__file__).parent
ROOT = Path(__file__).parents[2]
OURS = Package(SOURCE)
"""Its trees are there while these tests are."""
LIMITS = budgets(ROOT / "AGENTS.md")
LAYERS = table(
    sorted(
        {
            module.split(".")[2]
            for module in OURS.files
            if inside(module, "posttrain.components") and module.count(".") > 1
        }
    )
)
HEAVY = ("torch", "transformers", "datasets", "peft", "reasoning_gym", "ray")
"""Not to be imported by reading a recipe."""
NEEDS = {"posttrain.kernels._triton": "triton"}
"""Modules that are only for where something is installed that nothing else requires."""
MODULES = tuple(sorted(m.name for m in pkgutil.walk_packages(posttrain.__path__, "posttrain.")))


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    yield
    OURS.__dict__.pop("trees", None)


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


def run_python(code: str) -> None:
    """Run code in an interpreter of its own; what it exits with is why it failed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr.strip()


def test_no_modules_import_one_another_in_a_circle() -> None:
    """At the top, in functions, for type checking and by name alike."""
    assert circles(OURS.imports) == []


def test_every_import_is_in_the_table_of_layers() -> None:
    assert forbidden(OURS, LAYERS) == []


def test_the_table_of_layers_points_downwards() -> None:
    assert upwards(LAYERS) == []


def test_families_import_no_members_of_other_families() -> None:
    assert foreign_members(OURS) == []


def test_methods_import_settings_and_never_the_other_way() -> None:
    assert "settings" in LAYERS["methods"] and "methods" not in LAYERS["settings"]


def test_the_top_level_is_small_and_named() -> None:
    assert crowded(OURS, LAYERS, LIMITS["entries"]) == []


def test_files_and_functions_are_short_and_flat() -> None:
    assert oversized(OURS, LIMITS["file_lines"], LIMITS["function_lines"], LIMITS["nesting"]) == []


# Each law fails where it is broken


@pytest.fixture
def planted(tmp_path: Path) -> Callable[..., Package]:
    """A package of the given files, by path."""

    def plant(files: dict[str, str]) -> Package:
        for path, text in {"__init__.py": "", **files}.items():
            file = tmp_path / "posttrain" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return Package(tmp_path / "posttrain")

    return plant


TYPED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from posttrain.runs import Run\n"


@pytest.mark.parametrize(
    ("stages", "runs", "around"),
    [
        ("from posttrain.runs import Run\n", "import posttrain.stages\n", ["stages", "runs"]),
        (TYPED, "from posttrain import stages\n", ["stages", "runs"]),
        ("def f():\n    from posttrain.runs import Run\n", "from posttrain.stages import Stage\n", ["stages", "runs"]),
        ("WORKER = 'posttrain.runs.worker:work'\n", "import posttrain.stages\n", ["stages", "runs"]),
        ("from posttrain.runs.worker import work\n", "import posttrain.stages\n", ["stages", "runs"]),
        ("import posttrain.runs.worker\n", "from posttrain.runs.worker import work\n", []),
    ],
    ids=["top", "typed", "lazy", "by name", "package around a submodule", "own package is no circle"],
)
def test_a_circle_is_found(planted: Callable[..., Package], stages: str, runs: str, around: list[str]) -> None:
    files = {"stages/__init__.py": stages, "runs/__init__.py": runs, "runs/worker.py": ""}
    found = circles(planted(files).imports)
    assert found == ([sorted(f"posttrain.{name}" for name in around)] if around else [])


def test_circles_are_distinguished() -> None:
    imports = {"a": "b", "b": "c", "c": "a", "d": "ae", "e": "d", "f": "f"}
    assert circles(imports) == [["a", "b", "c"], ["d", "e"]]


@pytest.mark.parametrize(
    ("path", "code", "named"),
    [
        ("stages/rl.py", "from posttrain.recipes import Recipe\n", "posttrain.stages.rl imports posttrain.recipes"),
        (
            "policies/flow.py",
            "import posttrain.recipes.tree\n",
            "posttrain.policies.flow imports posttrain.recipes.tree",
        ),
        (
            "stages/sft.py",
            "from posttrain.components.rewards.match import Match\n",
            "posttrain.components.rewards.match",
        ),
        ("components/rewards/regex.py", "import posttrain.recipes\n", "posttrain.components.rewards.regex imports"),
        ("components/filters/__init__.py", "import posttrain.runs\n", "posttrain.components.filters imports"),
        ("settings/mine.py", "from posttrain.methods import grpo\n", "posttrain.settings.mine imports"),
        ("recipes/front.py", "from posttrain import run\n", "posttrain.recipes.front imports posttrain"),
        ("attic/old.py", "", "the table of layers has no row 'attic'"),
    ],
)
def test_what_the_table_does_not_allow_is_found(
    planted: Callable[..., Package], path: str, code: str, named: str
) -> None:
    others = (
        "recipes/__init__.py",
        "recipes/tree.py",
        "runs/__init__.py",
        "methods/__init__.py",
        "components/__init__.py",
    )
    files = {
        **dict.fromkeys((*others, "components/rewards/__init__.py", "components/rewards/match.py"), ""),
        path: code,
    }
    assert any(named in found for found in forbidden(planted(files), LAYERS))


def test_a_table_that_points_upwards_is_found() -> None:
    assert upwards(table((), {"errors": "", "stages": "errors runs", "runs": "stages"})) == ["stages may import runs"]


def test_a_member_of_another_family_is_found(planted: Callable[..., Package]) -> None:
    families = ("components/__init__.py", "components/rewards/__init__.py", "components/rewards/match.py")
    member = "import posttrain.components.rewards\nfrom posttrain.components.rewards.match import Match\n"
    files = {**dict.fromkeys(families, ""), "components/filters/__init__.py": "", "components/filters/best.py": member}
    assert foreign_members(planted(files)) == [
        "posttrain.components.filters.best imports posttrain.components.rewards.match"
    ]


def test_a_crowded_top_level_is_found(planted: Callable[..., Package]) -> None:
    package = planted({"errors.py": "", "runs/__init__.py": "", "py.typed": "", "attic/__init__.py": ""})
    assert crowded(package, LAYERS, 3) == ["'attic' is not in the table"]
    assert crowded(package, {**LAYERS, "attic": frozenset()}, 2) == ["3 entries at the top level; at most 2"]


def test_what_is_too_long_or_too_deep_is_found(planted: Callable[..., Package]) -> None:
    code = "def f():\n if a:\n  pass\n elif b:\n  for x in y:\n   with z:\n    pass\n"
    package = planted({"errors.py": code})
    assert oversized(package, 7, 7, 3) == []
    found = " ".join(oversized(package, 6, 6, 2))
    assert "errors.py has 7 lines; at most 6" in found
    assert "errors.py:1 f has 7 lines; at most 6" in found
    assert "f is nested 3 deep; at most 2" in found


def test_limits_are_those_that_the_guide_states(tmp_path: Path) -> None:
    guide = (ROOT / "AGENTS.md").read_text()
    other = tmp_path / "AGENTS.md"
    other.write_text(guide.replace(f"at most {LIMITS['file_lines']} lines", "at most 7 lines"))
    assert budgets(other) == {**LIMITS, "file_lines": 7}
    other.write_text(guide.replace("Files have at most", "Files are short, with"))
    with pytest.raises(AssertionError, match="must state each limit once"):
        budgets(other)


# What can be imported


@every_module
def test_imports_cleanly(module: str) -> None:
    if module not in NEEDS or importlib.util.find_spec(NEEDS[module]):
        importlib.import_module(module)


def import_first(modules: Sequence[str], folder: Path = SOURCE.parent) -> None:
    """Import each module of the package in a folder with nothing else of it loaded; fails where one cannot be."""
    run_python(
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "import posttrain\n"
        "early = [name for name in sys.modules if name.startswith('posttrain.')]\n"
        "if early: sys.exit(f'importing posttrain imports {early}')\n"
        f"for module in {list(modules)!r}:\n"
        "    for loaded in [name for name in sys.modules if name.split('.')[0] == 'posttrain']:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(module)\n"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)  # a hang, not a busy machine
def test_every_module_can_be_imported_first() -> None:
    """A circular import shows only from one of its ends. Where there is none, and no package around a module depends on
    it, the order of imports changes nothing: `test_imports_cleanly` imports them all.
    """
    import_first(entangled(OURS))


def test_a_module_that_cannot_be_imported_first_is_found(planted: Callable[..., Package]) -> None:
    """Of the circle between a package and a module in it, not of a module that imports both."""
    files = {
        "stages/__init__.py": "from posttrain.stages.fit import fit\nSTEPS = 1\n",
        "stages/fit.py": "from posttrain.stages import STEPS\ndef fit(): pass\n",
        "runs.py": "import posttrain.stages.fit\n",
    }
    package = planted(files)
    assert entangled(package) == ["posttrain.stages", "posttrain.stages.fit"]
    with pytest.raises(AssertionError, match="cannot import name 'STEPS' from partially initialized module"):
        import_first(entangled(package), package.folder.parent)
    with pytest.raises(AssertionError, match=r"importing posttrain imports \['posttrain.runs'\]"):
        import_first([], planted({"__init__.py": "import posttrain.runs\n", "runs.py": ""}).folder.parent)


def may_be_heavy(module: str) -> bool:
    """Whether a module may import torch at its top: policies, kernels, the learner's machinery, and private helpers."""
    parts = module.split(".")
    light_training = {"settings"}
    return (
        any(part.startswith("_") for part in parts)
        or parts[1] in ("policies", "kernels")
        or (parts[1] == "training" and len(parts) > 2 and parts[2] not in light_training)
    )


@pytest.mark.slow
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
