"""Write docs/methods.md, from what `posttrain list` and `posttrain diff` say.

.venv/bin/python docs/methods.py            write what is out of date
.venv/bin/python docs/methods.py --check    say what is out of date, and exit with 1 if anything is

To be run when a recipe or a component comes, goes, or changes its first sentence or source.
"""

import ast
import contextlib
import importlib
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from posttrain import cli
from posttrain.recipe.catalogue import Entry, entries, families, recipe_modules

ROOT = Path(__file__).resolve().parents[1]
METHODS = ROOT / "docs" / "methods.md"
INTRODUCTION = """# Methods

Every recipe and component that ships. This page is written by `docs/methods.py` from the modules' own docstrings, which
`posttrain list` prints; where a module departs from its paper, its docstring says so under "Differs".

## Recipes

A recipe is run by its name: `posttrain run grpo`. How they are changed and combined: [recipes](recipes.md).
"""
COMPONENTS = """## Components

What recipes are made of, by family. The first column is the `kind`; `posttrain show RECIPE` prints where each stands.
Diagnostics stand in no recipe: `posttrain diagnose KIND` runs them on models that are there.
"""


def pages() -> dict[Path, str]:
    """What each written file should hold."""
    return {METHODS: "\n".join(methods()) + "\n"}


def methods() -> Iterator[str]:
    """The lines of docs/methods.md."""
    yield INTRODUCTION
    roots = [recipe.name for recipe in recipes() if is_complete(recipe.name)]
    for recipe in recipes():
        yield f"### {recipe.name}\n\n{as_markdown(recipe.summary)}.\n"
        yield ", ".join(part for part in (link(recipe.source), f"[code]({module_of(recipe)})") if part) + "\n"
        yield f"```text\n{difference(recipe.name, roots)}```\n"
    yield COMPONENTS.rstrip("\n")
    for family, folder in families().items():
        if family not in ("recipe", "setting"):
            yield f"\n### {folder.name}\n\n{introduction(folder)}\n"
            yield from table_of("Kind", entries(family), module_of)


def recipes() -> list[Entry]:
    """Methods and settings, in alphabetical order."""
    return sorted([*entries("recipe"), *entries("setting")], key=lambda entry: entry.name)


def difference(recipe: str, roots: Sequence[str]) -> str:
    """What to change in the nearest complete recipe to get this one; nothing needs to be changed in a complete one."""
    if recipe in roots:
        return f"$ posttrain show {recipe}\n"
    changes = {root: output_of("diff", recipe, root) for root in roots}
    base = min(roots, key=lambda root: len(changes[root]))
    return f"$ posttrain diff {recipe} {base}\n{changes[base]}"


def is_complete(recipe: str) -> bool:
    """Whether a recipe starts from nothing, rather than from another recipe."""
    function = getattr(importlib.import_module(recipe_modules()[recipe]), recipe)
    return not inspect.signature(function).parameters


def output_of(*arguments: str) -> str:
    """What a command prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = cli.main(arguments)
    assert code == 0, f"posttrain {' '.join(arguments)} ends with {code}"
    return printed.getvalue()


def introduction(folder: Path) -> str:
    """The first paragraph of a family's docstring."""
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return as_markdown(" ".join(docstring.partition("\n\n")[0].split()))


def table_of(heading: str, listed: Iterable[Entry], target: Callable[[Entry], str]) -> Iterator[str]:
    """The lines of a table of recipes or components, whose names are links."""
    yield f"| {heading} | What it is | Source |"
    yield "|---|---|---|"
    for entry in listed:
        cells = (f"[`{entry.name}`]({target(entry)})", as_markdown(entry.summary), link(entry.source))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def module_of(entry: Entry) -> str:
    """Where docs/methods.md finds a module."""
    if entry.family in ("recipe", "setting"):
        module = Path(*recipe_modules()[entry.name].split(".")).with_suffix(".py")
        return os.path.relpath(ROOT / "src" / module, METHODS.parent)
    folder = families()[entry.family]
    module = folder / entry.name / "__init__.py" if (folder / entry.name).is_dir() else folder / f"{entry.name}.py"
    return os.path.relpath(module, METHODS.parent)


def link(source: str) -> str:
    """A source, as a link where it says where it is."""
    if number := re.fullmatch(r"arXiv:\s?([\d.]+)", source):
        return f"[{source}](https://arxiv.org/abs/{number[1]})"
    return f"<{source}>" if source.startswith("http") else source


def as_markdown(docstring: str) -> str:
    """Text of a docstring in Markdown: code has one backtick on each side."""
    return docstring.replace("``", "`")


def stale(wanted: Mapping[Path, str]) -> list[Path]:
    """The files that do not hold what they should."""
    return [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main(arguments: Sequence[str]) -> int:
    """Write or check; 0 when everything is, or has been brought, up to date."""
    if list(arguments) not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    wanted = pages()
    for path in (found := stale(wanted)):
        if arguments:
            print(f"{path.relative_to(ROOT)} is out of date; run: .venv/bin/python docs/methods.py", file=sys.stderr)
        else:
            path.write_text(wanted[path], encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return int(bool(found and arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
