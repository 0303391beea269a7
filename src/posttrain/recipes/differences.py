"""The differences between two recipes, path by path."""

import dataclasses
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from pydantic.fields import FieldInfo

from posttrain.component import Component, Unread
from posttrain.errors import UserError
from posttrain.recipes.overrides import parse_value, resolve, to_tree
from posttrain.recipes.tree import Recipe

Change = Literal["changed", "added", "removed"]
Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One path whose value differs between two recipes."""

    path: str
    """The shortest spelling on the command line that is valid in both."""
    keys: Keys
    """The path from the top of the tree."""
    change: Change
    before: Any
    """The value or subtree in the first recipe, None where it has none."""
    after: Any
    text: str
    """The values on one line, as the command line takes them; settings at their defaults are left out."""


def differences(a: Recipe, b: Recipe) -> list[Difference]:
    """All differences of two recipes, except their names, in the order of the trees.

    A component of another kind is one difference; so is one that only one of the recipes has.
    """
    trees = to_tree(a), to_tree(b)
    found = []
    for keys, change, before, after in _compare((), {**trees[0], "name": ""}, {**trees[1], "name": ""}):
        old = spell(before) if keys == ("stages",) or change == "added" else spell(essence(value_at(a, keys)))
        new = spell(after) if keys == ("stages",) or change == "removed" else spell(essence(value_at(b, keys)))
        text = {"changed": f"{old} -> {new}", "added": new, "removed": old}[change]
        path = _shortest(keys, trees)
        found.append(Difference(path=path, keys=keys, change=change, before=before, after=after, text=text))
    return found


def _compare(keys: Keys, x: Any, y: Any) -> Iterator[tuple[Keys, Change, Any, Any]]:
    """The differences of two values at the same path."""
    if keys == ("stages",):
        yield from _compare_order(keys, list(x), list(y))
    if x == y and keys:  # at the top, equal trees can still differ in the order of their stages
        return
    if isinstance(x, Mapping) and isinstance(y, Mapping) and x.get("kind") == y.get("kind"):
        for key in dict.fromkeys((*x, *y)):
            if key not in y:
                yield (*keys, key), "removed", x[key], None
            elif key not in x:
                yield (*keys, key), "added", None, y[key]
            else:
                yield from _compare((*keys, key), x[key], y[key])
    elif isinstance(x, list) and isinstance(y, list) and any(isinstance(item, Mapping) for item in (*x, *y)):
        yield from _compare_lists(keys, x, y)
    else:
        yield keys, "changed", x, y


def _compare_order(keys: Keys, x: Sequence[str], y: Sequence[str]) -> Iterator[tuple[Keys, Change, Any, Any]]:
    """Stages that both recipes have, but in another order."""
    x_common, y_common = [name for name in x if name in y], [name for name in y if name in x]
    if x_common != y_common:
        yield keys, "changed", x_common, y_common


def _compare_lists(keys: Keys, x: list[Any], y: list[Any]) -> Iterator[tuple[Keys, Change, Any, Any]]:
    """Differences of two lists of components: equal kinds in order are compared, others are added or removed."""
    kinds_of = [[str(item.get("kind")) if isinstance(item, Mapping) else str(item) for item in z] for z in (x, y)]
    matcher = difflib.SequenceMatcher(None, kinds_of[0], kinds_of[1], autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag == "equal" and i == j:
            for index in range(i, i_end):
                yield from _compare((*keys, str(index)), x[index], y[index])
        elif tag != "equal" or x[i:i_end] != y[j:j_end]:
            for index in range(i, i_end):
                yield (*keys, str(index)), "removed", x[index], None
            for index in range(j, j_end):
                yield (*keys, str(index)), "added", None, y[index]


def value_at(recipe: Recipe, keys: Keys) -> Any:
    """The value at a path of a recipe's tree."""
    node: Any = recipe
    for key in keys:
        if isinstance(node, Mapping):
            node = node[key]
        else:
            node = node[int(key)] if isinstance(node, Sequence) else getattr(node, key)
    return node


def essence(value: Any) -> Any:
    """A value as plain data, without settings at their defaults."""
    if isinstance(value, Mapping):
        return {key: essence(item) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset | set):
        return [essence(item) for item in value]
    if isinstance(value, Unread):
        return {"kind": value.kind, **essence(value.unread_settings)}
    if not dataclasses.is_dataclass(value):
        return value
    settings: dict[str, Any] = {"kind": value.kind} if isinstance(value, Component) else {}
    for field in dataclasses.fields(value):
        if getattr(value, field.name) != default_of(field):
            settings[field.name] = essence(getattr(value, field.name))
    return settings


def default_of(field: "dataclasses.Field[Any]") -> Any:
    """The default of a field; for a required one an object that is equal to no value."""
    if isinstance(field.default, FieldInfo):
        return field.default.get_default(call_default_factory=True, validated_data={})
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _shortest(keys: Keys, trees: tuple[Mapping[str, Any], ...]) -> str:
    """The shortest spelling that means this path in all of the trees."""
    for shorter in (keys[2:], keys[1:]) if keys[0] == "stages" else ():
        text = ".".join(shorter)
        try:
            if shorter and all(resolve(tree, text) == list(keys) for tree in trees):
                return text
        except UserError:  # not a path in one of them
            continue
    return ".".join(keys)


def spell(value: Any) -> str:
    """A value in the syntax of the command line, on one line."""
    if isinstance(value, Mapping):
        if set(value) == {"kind"}:
            return str(value["kind"])
        return "{" + ", ".join(f"{key}: {spell(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(spell, value))}]"
    if isinstance(value, str):
        if _is_plain(value):
            return value
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in escaped)
        return f'"{"".join(shown)}"'
    return json.dumps(value)


@lru_cache(maxsize=4096)
def _is_plain(text: str) -> bool:
    """Whether a text is read back as itself without quotes, also in a list."""
    try:
        return bool(parse_value(f"[{text}]") == [text])
    except UserError:  # "{{ name }}" would be a mapping as the key of a mapping
        return False
