"""The differences of a method from its parent, and the documentation of what it sets."""

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from posttrain.component import Component
from posttrain.recipes.catalogue import Entry, entries, families, recipe_modules
from posttrain.recipes.differences import Difference, differences, essence, spell, value_at
from posttrain.recipes.tree import Recipe

FORMULAS: Final = ("objective", "advantage", "preference_loss", "penalty", "reducer", "correction")
"""Families whose docstrings hold what a method computes."""


known_families = cache(families)
listed = cache(entries)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A component or another settings object, and which of its fields are shown."""

    path: str
    """Its path in the recipe."""
    value: Any
    fields: tuple[str, ...]

    @property
    def family(self) -> str:
        """The family of a component, as in the catalogue; empty for other settings."""
        if not isinstance(self.value, Component):
            return ""
        folder = self.value.family().rpartition(".")[2]
        return next((name for name, path in known_families().items() if path.name == folder), "")

    @property
    def docstring(self) -> str:
        """The docstring of a component's module."""
        return sys.modules[type(self.value).__module__].__doc__ or ""

    def numbers(self) -> Iterator[tuple[str, str, str]]:
        """Path, value and docstring of each field that is shown."""
        described = getattr(type(self.value), "__pydantic_fields__", {})
        for name in self.fields:
            description = described[name].description if name in described else None
            yield f"{self.path}.{name}".lstrip("."), spell(essence(getattr(self.value, name))), description or ""


def function_of(name: str) -> Callable[..., Recipe]:
    """The function of a method or a setting."""
    function: Callable[..., Recipe] = getattr(importlib.import_module(recipe_modules()[name]), name)
    return function


def changes_of(entry: Entry) -> tuple[list[Difference], Recipe]:
    """A method's differences from its parent on its default setting, and the resulting recipe.

    A method without a parent is compared with its setting; one without a setting is a complete recipe, without
    differences.
    """
    if not entry.setting:
        return [], function_of(entry.name)()
    setting = function_of(entry.setting)()
    base = function_of(entry.parent)(setting) if entry.parent else setting
    recipe = function_of(entry.name)(setting)
    return differences(base, recipe), recipe


def parts_of(found: Sequence[Difference], recipe: Recipe) -> list[Part]:
    """The settings objects that differences add or replace, and the changed fields of others."""
    parts: dict[str, Part] = {}
    for difference in found:
        if difference.change == "removed" or difference.keys == ("stages",):
            continue
        inside = list(inside_of(difference.path, value_at(recipe, difference.keys)))
        parts |= {part.path: part for part in inside}
        owner, field = value_at(recipe, difference.keys[:-1]), difference.keys[-1]
        if inside or not dataclasses.is_dataclass(owner):
            continue
        path = difference.path.rpartition(".")[0]
        known = parts[path].fields if path in parts else ()
        parts[path] = Part(path=path, value=owner, fields=(*known, field))
    return list(parts.values())


def parts_of_root(recipe: Recipe) -> list[Part]:
    """The components of the last stage's learning."""
    stage: Any = list(recipe.stages.values())[-1]
    fields = [field.name for field in dataclasses.fields(stage)]
    found = [part for name in fields for part in inside_of(name, getattr(stage, name))]
    return [part for part in found if part.family in FORMULAS]


def inside_of(path: str, value: Any) -> Iterator[Part]:
    """A settings object and those inside it, each with its fields of plain values."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from inside_of(f"{path}.{key}", item)
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from inside_of(f"{path}.{index}", item)
    elif dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
        within = {name: list(inside_of(f"{path}.{name}", getattr(value, name))) for name in fields}
        yield Part(path=path, value=value, fields=tuple(name for name in fields if not within[name]))
        for parts in within.values():
            yield from parts
