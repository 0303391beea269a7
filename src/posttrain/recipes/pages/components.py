"""The page of a family of components, and the page of settings."""

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

from pydantic_core import PydanticUndefined

from posttrain.component import Component
from posttrain.recipes.catalogue import Entry, recipe_modules
from posttrain.recipes.differences import default_of, essence, spell
from posttrain.recipes.pages.markdown import block, inline, markdown, paragraphs, source, table
from posttrain.recipes.pages.parts import known_families, listed


def family_page(family: str) -> str:
    """The contract of a family, and each of its members with its settings."""
    folder, members = known_families()[family], listed(family)
    package = ".".join(("posttrain", *folder.parts[folder.parts.index("posttrain") + 1 :]))
    contract = importlib.import_module(package)
    first, *rest = paragraphs(contract.__doc__ or "")
    rows = [(f"[`{e.name}`](#{e.name})", inline(e.summary), source(e.source)) for e in members]
    sections = [
        f"# {folder.name.capitalize()}",
        inline(" ".join(first.split())),
        *map(block, rest),
        table(("Kind", "What it is", "Source"), rows),
    ]
    for entry in members:
        sections += _member(entry, f"{package}.{entry.name}")
    return "\n\n".join(section for section in sections if section) + "\n"


def settings_page() -> str:
    """The settings: complete recipes to which methods are applied."""
    sections = [
        "# Settings",
        "Complete recipes: tasks, model, warm-up, verifier, sizes. A method runs on its default setting, or "
        "on any other: `posttrain run METHOD setting=NAME`, or `setting=mine.yaml` for one's own.",
    ]
    for entry in listed("setting"):
        docstring = importlib.import_module(recipe_modules()[entry.name]).__doc__ or ""
        sections += [f"## {entry.name}", markdown(docstring), f"```text\nposttrain show {entry.name}\n```"]
    return "\n\n".join(sections) + "\n"


def _member(entry: Entry, module_name: str) -> Iterator[str]:
    """One component: its docstring, and a table of its settings."""
    module = importlib.import_module(module_name)
    yield f"## {entry.name}"
    yield from (block(text) for text in paragraphs(module.__doc__ or ""))
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Component) and value.__module__ == module_name
    ]
    described: Any = getattr(found[0], "__pydantic_fields__", {}) if found else {}
    rows = [
        (f"`{field.name}`", _default(field), inline(" ".join((described[field.name].description or "").split())))
        for field in (fields(found[0]) if found else ())  # type: ignore[arg-type]
    ]
    yield table(("Setting", "Default", "Meaning, unit, source"), rows)


def _default(field: Any) -> str:
    """The default of a field, as the command line spells it."""
    default = default_of(field)
    return "required" if default is MISSING or default is PydanticUndefined else f"`{spell(essence(default))}`"
