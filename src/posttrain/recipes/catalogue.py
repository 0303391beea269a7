"""The catalogue of methods, settings and components, read from source without importing any of them.

A module describes itself by its docstring and by literal constants:

    PARENT     the method that it is a difference from; None for a root          (methods)
    SETTING    the default setting                                               (methods)
    PAPER      its source, as `posttrain list` prints it; otherwise the first one that the docstring names
    ROWS       rows of the catalogue of methods that it covers
    CHANGES    paths of a setting that it changes since they are a part of the method (methods)
    INHERITED  paths with the parent's value where the paper has another, and the paper's value (methods)
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from posttrain.errors import UserError

PACKAGE = Path(__file__).parents[1]
CONSTANTS = frozenset({"PARENT", "SETTING", "PAPER", "ROWS", "CHANGES", "INHERITED", "SOURCE", "SHARED"})
"""Names that are read from a module; their values are literals."""

_SENTENCE_END = re.compile(r"(?<!\bal)(?<!\bDr)(?<!\bEq)(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)\.(?=\s|$)")
_SOURCES = (
    r"arXiv:\s?\d{4}\.\d{4,5}",
    r"https?://[^\s)>,]+[^\s)>,.]",
    r"[A-Z][\w'-]+ (?:et al\.|(?:and|&) [A-Z][\w'-]+),? \(?(?:19|20)\d\d",
    r"[A-Z][\w'-]+,? \(?(?:19|20)\d\d\b",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One recipe or component."""

    name: str
    """Its name on the command line; for a component its kind."""
    family: str
    """``recipe`` for a method, ``setting``, or its contract: ``objective``, ``advantage``, ..."""
    rows: tuple[int, ...]
    """Rows of the catalogue of methods that it covers: its module's ``ROWS``."""
    source: str
    """The paper or page that it follows: its ``PAPER`` or ``SOURCE``, or the first that its docstring names."""
    summary: str
    """The first sentence of its docstring."""
    area: str = ""
    """The folder of a method: ``policy_gradient``, ``sft_rl``, ...; empty for other entries, as are the following
    fields.
    """
    parent: str = ""
    """The method that a method is a difference from; empty for a root."""
    setting: str = ""
    """The default setting of a method."""
    changes: tuple[str, ...] = ()
    """Paths of a setting that a method changes since they are a part of it."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """Paths with the parent's value where the paper has another: the paper's values."""


def families() -> dict[str, Path]:
    """The folder of each family by its name, ``recipe`` (methods) and ``setting`` first."""
    return dict(_families(PACKAGE))


@cache
def _families(package: Path) -> dict[str, Path]:
    found = {"recipe": package / "methods", "setting": package / "settings"}
    for path in sorted(package.rglob("*/__init__.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and any(
                isinstance(b, ast.Name) and b.id == "Component" for b in node.bases
            ):
                found[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower()] = path.parent
    return found


def entries(family: str | None = None) -> list[Entry]:
    """Every entry, or those of one family. Raises `UserError` for an unknown family."""
    known = families()
    if family is None:
        return [entry for name, folder in known.items() for entry in _members(name, folder)]
    by_folder = {folder.name: name for name, folder in known.items()}
    name = by_folder.get(family, family)
    if name not in known:
        from posttrain.component import nearest

        raise UserError(f"no family '{family}'; {nearest(family, known)}")
    return list(_members(name, known[name]))


def select(found: Sequence[Entry], *, area: str | None, text: str | None, row: int | None) -> list[Entry]:
    """The entries of an area, with a text in name, source or summary, and of a row; None takes all.

    Raises `UserError` for an unknown area.
    """
    areas = {entry.area for entry in entries("recipe")}
    if area is not None and area not in areas:
        from posttrain.component import nearest

        raise UserError(f"no area '{area}'; {nearest(area, areas)}")
    wanted = (text or "").casefold()
    return [
        entry
        for entry in found
        if area in (None, entry.area)
        and wanted in f"{entry.name} {entry.source} {entry.summary}".casefold()
        and (row is None or row in entry.rows)
    ]


def _members(family: str, folder: Path) -> Iterator[Entry]:
    """The entries of a family's folder, in alphabetical order; methods lie in folders by area."""
    found = folder.rglob("*.py") if family == "recipe" else folder.iterdir()
    contract = folder / "__init__.py"
    shared = _constants(ast.parse(contract.read_text(encoding="utf-8"))).get("SHARED", ()) if contract.exists() else ()
    for path in sorted(found, key=lambda path: path.stem):
        module = path / "__init__.py" if path.is_dir() else path
        if path.name[0] in "_." or path.stem in shared or module.suffix != ".py" or not module.exists():
            continue
        yield _read(path.stem, family, module)


def find_entry(name: str) -> Entry | None:
    """The entry of a method or a setting; None where there is none of that name."""
    module = recipe_modules().get(name)
    if module is None:
        return None
    path = PACKAGE.parent / Path(*module.split(".")).with_suffix(".py")
    return _read(name, "setting" if path.parent == PACKAGE / "settings" else "recipe", path)


def recipe_modules() -> dict[str, str]:
    """The module of every method and setting by its name."""
    return dict(_recipe_modules(PACKAGE))


@cache
def _recipe_modules(package: Path) -> dict[str, str]:
    files = [*(package / "methods").rglob("[!_]*.py"), *(package / "settings").glob("[!_]*.py")]
    return {file.stem: ".".join(file.relative_to(package.parent).with_suffix("").parts) for file in sorted(files)}


@cache
def _read(name: str, family: str, path: Path) -> Entry:
    """Read one module's docstring and constants, once: what is imported does not change with the file either."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree) or ""
    constants = _constants(tree)
    first, *_ = _SENTENCE_END.split(docstring.partition("\n\n")[0], maxsplit=1)
    found = (match[0].replace("(", "") for pattern in _SOURCES if (match := re.search(pattern, docstring)))
    return Entry(
        name=name,
        family=family,
        rows=tuple(constants.get("ROWS", ())),
        source=str(constants.get("PAPER") or constants.get("SOURCE") or next(found, "")),
        summary=" ".join(first.split()),
        area=path.parent.name if family == "recipe" else "",
        parent=str(constants.get("PARENT") or ""),
        setting=str(constants.get("SETTING") or ""),
        changes=tuple(constants.get("CHANGES", ())),
        inherited=dict(constants.get("INHERITED", {})),
    )


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Those of `CONSTANTS` that the module has."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id in CONSTANTS:
                found[target.id] = ast.literal_eval(node.value)
    return found
