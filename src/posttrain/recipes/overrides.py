"""Recipes as plain data, and overrides by dotted paths.

    posttrain run grpo rollout.n=16 objective.clip_high=0.28 tasks=mine.jsonl

A path is resolved from the top of the recipe first (``tasks``, ``models.policy.lora``, ``stages.rl.steps``), then from
the name of a stage (``rl.steps``), then inside the only stage that has it (``steps``). The value is YAML. A stage that
is set to null is left out: ``sft=null``.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from posttrain.component import nearest, renamed
from posttrain.errors import UserError
from posttrain.recipes.following import follow_model
from posttrain.recipes.tree import Recipe
from posttrain.stages import Stage

SHORTHANDS = {
    "model": "models.policy.source",
    "lr": "learner.optimizer.lr",
    "privacy": "learner.privacy",
    "epsilon": "learner.privacy.epsilon",
}
"""Aliases of frequent paths."""

_RECIPE: TypeAdapter[Recipe] = TypeAdapter(Recipe)


def to_tree(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain dicts, lists and scalars; `from_tree` returns the same recipe."""
    tree: dict[str, Any] = _RECIPE.dump_python(recipe, mode="json")
    return tree


def from_tree(tree: Any, *, places: Mapping[str, str] | None = None) -> Recipe:
    """Validate a tree. Raises `UserError` with each invalid path, its value and the allowed values.

    `places` maps dotted paths to their places in a file (``mine.yaml line 7``), for the message.
    """
    try:
        return _RECIPE.validate_python(tree)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    raise UserError("\n".join(_explain(item, tree, places or {}) for item in errors))


def _explain(error: Any, tree: Any, places: Mapping[str, str]) -> str:
    """One line for one validation error: the dotted path, its place, the error."""
    kind, path, context = error["type"], [str(part) for part in error["loc"]], error.get("ctx", {})
    what, at = error["msg"], [*path, context["key"]] if "key" in context else path
    if kind not in ("unknown_field", "kind", "missing", "secret"):
        what += f", got {error['input']!r:.80}"
    if kind == "dataclass_type":
        what = f"settings are expected, as in {{NAME: VALUE}}, got {error['input']!r:.80}"
    if kind == "literal_error" and path[-1] == "[key]":
        *path, key, _ = path
        known = re.findall("'(.+?)'", context["expected"])
        at, what = [*path, key], f"no key '{key}'; {nearest(key, known)}"
    elif kind == "missing":
        at = path[:-1]  # it was not written, but the mapping that lacks it was
        what += _mistyped(tree, at)
    elif kind == "kind" and "got" in context:
        what += _mistyped(tree, at)
    where = None if kind == "secret" else _place(at, places)  # a place may repeat what was written there
    return f"{'.'.join(path) or 'recipe'}{f' ({where})' if where else ''}: {what}"


def _place(at: Sequence[str], places: Mapping[str, str]) -> str | None:
    """The place of a path: its own, or else that of its nearest parent, or else of its first part."""
    around = [".".join(at[:depth]) for depth in range(len(at), 0, -1)]
    written = [places[outer] for outer in around if outer in places]
    inside = [place for inner, place in places.items() if around and inner.startswith(f"{around[0]}.")]
    return next(iter([*written, *inside]), None)


def _mistyped(tree: Any, at: Sequence[str]) -> str:
    """A hint for an incomplete entry: its name may be a misspelling of another entry's name."""
    for part in at[:-1]:
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    others = [name for name in tree if name != at[-1]] if at and isinstance(tree, Mapping) else []
    close = get_close_matches(at[-1], others, n=1, cutoff=0.7) if others else []
    return f"; did you mean '{close[0]}'?" if close else ""


def override(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """Apply ``path=value`` and ``path+=value`` (append to a list) in order, and validate once at the end.

    Where they name a larger model, what they leave as it was follows the model (`follow_model`).
    """
    before, tree = to_tree(recipe), to_tree(recipe)
    places: dict[str, str] = {}
    for change in changes:
        matched = re.fullmatch(r"([\w.\-]+?)(\+?=)(.*)", change, flags=re.DOTALL)
        if not matched:
            raise UserError(f"'{change}' is not an override; write path=value, for example rollout.n=16")
        path, operator, text = matched.groups()
        target = resolve(tree, path)
        assign(tree, target, parse_value(text), append=operator == "+=")
        full = ".".join(target)
        places = {at: place for at, place in places.items() if not at.startswith(f"{full}.")}
        places[full] = f"from '{change}'"
    follow_model(before, tree, places)
    return from_tree(tree, places=places)


def repeats(recipe: Recipe, changes: Sequence[str]) -> list[str]:
    """A warning for each of a user's changes to a recipe that does nothing, because a later one sets the same path."""
    tree = to_tree(recipe)
    given: dict[str, str] = {}
    found = []
    for change in changes:
        path, _, _ = change.partition("=")
        if path in ("", "setting", "world", "view") or path.endswith("+"):
            continue
        try:
            full = ".".join(resolve(tree, path))
        except UserError:  # of a stage that was left out
            continue
        for at in [at for at in given if at == full or at.startswith(f"{full}.")]:
            found.append(f"'{given.pop(at)}' does nothing, because '{change}' sets {full} after it")
        given[full] = change
    return found


def parse_value(text: str) -> Any:
    """Parse a value as YAML 1.2: numbers, booleans, lists and mappings, else the text itself."""
    return deepcopy(_parsed(text))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    from ruamel.yaml.error import YAMLError

    from posttrain.recipes.plain_yaml import load_yaml

    try:
        value, _ = load_yaml(text, f"the value {text[:60]!r}")
    except YAMLError:
        return text
    return text if value is None and text.strip() not in ("null", "~", "") else value


def resolve(tree: Mapping[str, Any], path: str) -> list[str]:
    """The full path, from the top of the tree, of a possibly shortened dotted path."""
    parts = path.split(".")
    if parts[0] in SHORTHANDS:
        parts = SHORTHANDS[parts[0]].split(".") + parts[1:]
    if parts[0] in tree or parts[0] in renamed(Recipe):
        return parts
    # An earlier change may have set any value here; validation of the whole tree refuses it.
    stages = tree["stages"] if isinstance(tree["stages"], Mapping) else {}
    stages = {name: stage for name, stage in stages.items() if isinstance(stage, Mapping)}
    if parts[0] in stages:
        return ["stages", *parts]
    owners = [name for name, stage in stages.items() if parts[0] in stage]
    if len(owners) == 1:
        return ["stages", owners[0], *parts]
    if owners:
        spelled = " or ".join(f"{name}.{path}" for name in owners)
        raise UserError(f"'{path}' is in {len(owners)} stages of this recipe; write {spelled}")
    before = [name for name, stage in stages.items() if parts[0] in _renamed_in(stage)]
    if before:
        return ["stages", before[0], *parts]  # validation refuses it with its new name
    known = {*tree, *stages, *SHORTHANDS, *(field for stage in stages.values() for field in stage if field != "kind")}
    named = ", ".join(map(str, stages))
    raise UserError(f"no field '{parts[0]}' in this recipe or its stages ({named}); {nearest(parts[0], known)}")


def _renamed_in(stage: Mapping[str, Any]) -> Mapping[str, str]:
    """The renamed fields of a stage."""
    kind = stage.get("kind")
    return renamed(Stage.find(kind)) if kind in Stage.kinds() else {}


def assign(tree: dict[str, Any], path: Sequence[str], value: Any, *, append: bool = False) -> None:
    """Set one leaf or subtree of a tree in place. Setting a component's ``kind`` drops the settings of the old kind."""
    node: Any = tree
    for depth, part in enumerate(path[:-1]):
        if isinstance(node, dict) and node.get(part) is None:
            node[part] = {}
        node = _descend(node, part, path[: depth + 1])
        if isinstance(node, str) and (whole := to_tree(from_tree(tree))) != tree:
            tree.update(whole)  # a component given as text is expanded before one of its settings is changed
            return assign(tree, path, value, append=append)
    last = path[-1]
    if not isinstance(node, dict):
        _descend(node, last, path)
        node[int(last)] = value
    elif append:
        node[last] = [*(node.get(last) or []), *(value if isinstance(value, list) else [value])]
    elif last == "kind" and node.get("kind") != value:
        node.clear()
        node["kind"] = value
    elif value is None and path[:-1] == ["stages"] and last in node and len(node) > 1:
        del node[last]
    else:
        node[last] = value


def _descend(node: Any, part: str, path: Sequence[str]) -> Any:
    """The child of a mapping or list. Raises `UserError` if there is none."""
    if isinstance(node, list) and part.isdigit() and int(part) < len(node):
        return node[int(part)]
    if isinstance(node, dict) and part in node:
        return node[part]
    known = node if isinstance(node, dict) else [str(i) for i in range(len(node))] if isinstance(node, list) else []
    hint = nearest(part, map(str, known)) if known else f"{'.'.join(path[:-1])} holds {node!r}, which has no fields"
    raise UserError(f"no '{'.'.join(path)}' in this recipe; {hint}")
