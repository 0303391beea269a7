"""Finding recipes: by name, in a Python file, in a YAML file, in the folder of a run.

    gigpo                     a method that ships with the package, on its default setting
    corridor                  a setting that ships with the package
    methods.py:my_grpo        a function of a Python file, or package.module:function
    mine.yaml                 a whole recipe as `posttrain show` prints it, or ``base: NAME`` and changes to it
    runs/grpo-3               the recipe of a run
    dr_grpo+gigpo             methods, applied from left to right

With ``setting=NAME``, on the command line or in a YAML file next to ``base``, a method is applied to another recipe
than its default setting: any of the above. ``world=SOURCE`` takes the setting ``foreign``, unless another is named.

Paths of data and of reward functions inside a recipe are kept as written: relative to the working directory of the
command, not to the YAML file. Only ``base`` and ``setting`` are relative to the file in which they are written.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from ruamel.yaml.reader import ReaderError

from posttrain.component import Component, Unread, nearest
from posttrain.component.user_code import accept, find_code, reads_only, unread
from posttrain.errors import UserError
from posttrain.errors.foreign import read_bytes
from posttrain.recipes.catalogue import Entry, entries, find_entry, recipe_modules
from posttrain.recipes.changes import Method, compose
from posttrain.recipes.following import follow_model
from posttrain.recipes.functions import blamed, from_function, load_function, no_file
from posttrain.recipes.overrides import assign, from_tree, override, resolve, to_tree
from posttrain.recipes.plain_yaml import load_yaml
from posttrain.recipes.tree import Recipe
from posttrain.recipes.yaml_writer import tree_to_yaml

LARGEST: Final = 1 << 20
"""Bytes of a recipe's file; those of this package have less than 10,000."""
RENAMED: Final[Mapping[str, str]] = {
    "judged_rounds": "reward_model_rounds",
    "judged_sums": "reward_model_sums",
    "rated_workings": "rated_solutions",
}
"""New names of shipped methods and settings, by the names that they had before."""
SPREAD: Final[Mapping[str, tuple[str, str]]] = {
    "world": ("foreign", "source"),
    "view": ("foreign", "view"),
    "tasks": ("played", "tasks"),
}
"""Words that set a field of all components of a kind in the stages of the setting ``foreign``."""


def find_recipe(text: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe that a command line names, with its ``path=value`` changes. Raises `UserError` if there is none.

    Code of the user's that the recipe names needs consent (`posttrain.component.user_code`), so the recipe is resolved
    without it first. A command that only reads keeps that: components of the user's stay as they were written.
    """
    with unread(typed=[text, *changes]):
        recipe = _resolve(text, changes)
    if reads_only():
        return recipe
    named = [find_code(spelling) for spelling in named_code(recipe)]
    accept(named, text, typed=[text, *changes])
    return _resolve(text, changes) if any(isinstance(part, Unread) for part in components_of(recipe)) else recipe


def _resolve(text: str, changes: Sequence[str]) -> Recipe:
    setting, changes = _setting_of(changes)
    recipe = _find(text, Path(), ()) if setting is None else _put_on(text, setting, Path(), ())
    changes = _spread(text, recipe, changes)
    return override(recipe, changes) if changes else recipe


def _spread(text: str, recipe: Recipe, changes: Sequence[str]) -> list[str]:
    """The changes; those of ``world=`` and the words beside it set every place in the recipe that they are for."""
    if not any(change.startswith("world=") for change in changes):
        return list(changes)
    tree = to_tree(recipe)
    return [full for change in changes for full in _spread_one(text, tree, change)]


def _spread_one(text: str, tree: Mapping[str, Any], change: str) -> list[str]:
    path, equals, value = change.partition("=")
    path, dot, inner = path.partition(".") if path.startswith("tasks.") else (path, "", "")
    if path not in SPREAD:
        return [change]
    kind, field = SPREAD[path]
    places = [f"stages.{place}.{field}" for place in _places(tree["stages"], kind)]
    if path == "world" and not any(".rollout." in place for place in places):
        raise UserError(
            f"world={value} sets the environment of rollouts, and no stage of '{text}' has rollouts in one: its stages "
            f"are {', '.join(tree['stages'])}. Take a method with such a stage, for example: posttrain run grpo "
            f"world={value}"
        )
    return [f"{full}{dot}{inner}{equals}{value}" for full in ([path] if path in tree else []) + places]


def _places(tree: Any, kind: str) -> Iterator[str]:
    """Paths of the components of a kind in a tree."""
    for name, part in tree.items() if isinstance(tree, Mapping) else ():
        if isinstance(part, Mapping) and part.get("kind") == kind:
            yield str(name)
        yield from (f"{name}.{inner}" for inner in _places(part, kind))


def named_code(value: Any) -> list[str]:
    """The user's code that a recipe or a component names, as written: kinds, reward functions, ..."""
    found: dict[str, None] = {}
    for part in components_of(value):
        found |= dict.fromkeys([part.own_kind] if part.own_kind else [])
        found |= dict.fromkeys(() if isinstance(part, Unread) else part.user_code)
    return list(found)


def components_of(value: Any) -> Iterator[Component]:
    """Every component inside a value, at any depth."""
    if isinstance(value, Component):
        yield value
    if isinstance(value, Unread):
        return
    if is_dataclass(value):
        inner: Iterable[Any] = (getattr(value, field.name) for field in fields(value))
    elif isinstance(value, Mapping):
        inner = value.values()
    else:
        inner = value if isinstance(value, list | tuple) else ()
    for item in inner:
        yield from components_of(item)


def find_parent(text: str, changes: Sequence[str] = ()) -> tuple[str, Recipe]:
    """The name of a method's parent, and the parent on the same setting, with the same changes.

    Raises `UserError` if it is not a method, or has no parent.
    """
    entry = find_entry(text.replace("-", "_"))
    if entry is None or entry.family != "recipe" or not entry.parent:
        what = "is a root, a difference from nothing" if entry and entry.family == "recipe" else "is no shipped method"
        raise UserError(f"'{text}' {what}, so it has no parent to be compared with; name a second recipe")
    setting, changes = _setting_of(changes)
    recipe = _put_on(entry.parent, setting or entry.setting, Path(), ())
    changes = _spread(entry.parent, recipe, changes)
    return entry.parent, override(recipe, changes) if changes else recipe


def list_recipes() -> list[Entry]:
    """The methods and settings that ship with the package."""
    return [*entries("recipe"), *entries("setting")]


def to_yaml(recipe: Recipe) -> str:
    """The recipe as YAML; `find_recipe` on a file with this text returns the same recipe."""
    return tree_to_yaml(to_tree(recipe))


def _find(text: str, folder: Path, through: tuple[Path, ...]) -> Recipe:
    """The recipe that `text` names, relative to `folder`; `through` are the files whose ``base`` led here."""
    path = folder / text
    shipped = recipe_modules()
    if text.endswith((".yaml", ".yml")):
        return _from_yaml(path, through)
    if ":" in text and "+" not in text.rpartition("/")[2]:
        _accept_function(text, folder, through)
        return from_function(text, folder)
    if (name := text.replace("-", "_")) in shipped:
        return from_function(f"{shipped[name]}:{name}", folder)
    if (path / "recipe.yaml").exists():
        return _from_yaml(path / "recipe.yaml", through)
    if path.is_dir():
        raise UserError(f"{path} is not the folder of a run: it has no recipe.yaml")
    if "+" in text and "/" not in text:
        return _put_on(text, _common_setting(text), folder, through)
    if text.endswith(".py"):
        raise UserError(f"which function of {text}? Write {text}:NAME")
    if "/" in text:
        raise UserError(f"no folder {path} (working in {Path.cwd()})")
    if name in RENAMED:
        raise UserError(f"the recipe '{text}' was renamed: write {RENAMED[name]}")
    raise UserError(f"no recipe named '{text}'; {nearest(text, shipped)}")


def _setting_of(changes: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of ``setting=`` among the changes, and the other changes."""
    named = [change.partition("=")[2] for change in changes if change.startswith("setting=")]
    if len(named) > 1:
        raise UserError(f"there is one setting for a recipe, got {', '.join(named)}")
    changes = [change for change in changes if not change.startswith("setting=")]
    if not named and any(change.startswith("world=") for change in changes):
        return "foreign", changes
    return next(iter(named), None), changes


def _put_on(text: str, setting: str, folder: Path, through: tuple[Path, ...]) -> Recipe:
    """Apply the method named by `text`, or several joined by a plus, to the recipe named by `setting`."""
    methods = [_method(part, folder, through) for part in text.split("+")]
    recipe = _find(setting, folder, through)
    return methods[0](recipe) if len(methods) == 1 else compose(recipe, *methods)


def _common_setting(text: str) -> str:
    """The default setting of several methods. Raises `UserError` if they have different ones."""
    settings = {}
    for part in text.split("+"):
        entry = find_entry(part.replace("-", "_"))
        settings[part] = entry.setting if entry else ""
    if len(set(settings.values())) > 1 or "" in settings.values():
        own = ", ".join(f"{part} {setting or 'none'}" for part, setting in settings.items())
        raise UserError(f"which setting for {text}? Their own are: {own}. Write setting=NAME")
    return next(iter(settings.values()))


def _accept_function(text: str, folder: Path, through: tuple[Path, ...]) -> None:
    """Raises `UserError` where a recipe file names a function that may not run; on the command line it may."""
    source, _, name = text.rpartition(":")
    code = find_code(f"{(folder / source).resolve()}:{name}" if source.endswith(".py") else text)
    if through and reads_only():
        raise UserError(f"{through[-1]} is made by {code}, which is code, and this command only reads")
    accept([code], str(through[-1]) if through else text, typed=() if through else [code.spelling])


def _method(text: str, folder: Path, through: tuple[Path, ...]) -> Method:
    """The function of a method. Raises `UserError` for a setting, a file or a folder, which are complete recipes."""
    entry = find_entry(name := text.replace("-", "_"))
    if entry is not None and entry.family == "recipe":
        return load_function(f"{recipe_modules()[name]}:{name}", folder)
    if entry is None and ":" in text:
        _accept_function(text, folder, through)
        function = load_function(text, folder)
        if inspect.signature(function).parameters:
            return blamed(function, text)
        what = "a function that takes no recipe"
    elif entry is not None:
        what = "a setting, a complete recipe"
    elif text.endswith((".yaml", ".yml")):
        what = "a recipe file"
    elif (folder / text).is_dir():
        what = "a folder"
    else:
        known = [name for name, module in recipe_modules().items() if module.startswith("posttrain.methods.")]
        raise UserError(f"no method named '{text}'; {nearest(text, known)}")
    raise UserError(f"'{text}' is {what}; a method is what is put on a setting, or added to another method")


def _from_yaml(path: Path, through: tuple[Path, ...]) -> Recipe:
    """The recipe of a YAML file: a whole tree, or changes to its ``base``."""
    try:
        path.resolve(strict=True)
    except FileNotFoundError:
        raise no_file(path, "*.y*ml") from None
    except (OSError, RuntimeError) as error:  # a link to itself
        raise UserError(f"{path} cannot be opened: {error}") from None
    if path.resolve() in through:
        chain = " -> ".join(file.name for file in (*through, path))
        raise UserError(f"{path} is its own base: {chain}")
    content, lines = _read_yaml(path)
    base, setting = content.pop("base", None), content.pop("setting", None)
    places = {keys: f"{path} line {line}" for keys, line in lines.items()}
    if setting is not None and not isinstance(base, str):
        raise UserError(f"{places['setting']}: a setting is for the method in base; this file has no base")
    if base is None:
        missing = [key for key in ("name", "models", "tasks", "stages") if key not in content]
        if missing:
            raise UserError(
                f"{path} has no {', '.join(missing)} and no base. A recipe file is whole, as `posttrain show` prints "
                "it, or begins with the recipe that it changes, for example base: grpo"
            )
        return from_tree(content, places=places)
    if not isinstance(base, str):
        raise UserError(f"{places['base']}: base is the name of a recipe or a path, got {base!r}")
    if not isinstance(setting, str | None):
        raise UserError(f"{places['setting']}: setting is the name of a recipe or a path, got {setting!r}")
    through = (*through, path.resolve())
    started = _put_on(base, setting, path.parent, through) if setting else _find(base, path.parent, through)
    tree = to_tree(started)
    targets: dict[str, str] = {}
    written_paths: list[str] = []
    for written, value in sorted(_changes(tree, content, ""), key=_kinds_first):
        try:
            target = resolve(tree, written)
            assign(tree, target, value)
        except UserError as error:
            raise UserError(f"{places[written]}: {error}") from None
        full = ".".join(target)
        written_paths.append(full)
        targets |= {
            full + at[len(written) :]: place for at, place in places.items() if f"{at}.".startswith(f"{written}.")
        }
    follow_model(to_tree(started), tree, written_paths)
    return from_tree(tree, places=targets)


def _changes(tree: Mapping[str, Any], content: Mapping[Any, Any], above: str) -> Iterator[tuple[str, Any]]:
    """Dotted paths and new values. A mapping changes the existing one; with another kind it replaces it."""
    for key, value in content.items():
        path = f"{above}{key}"
        there = _value_at(tree, path)
        if value and isinstance(value, Mapping) and there and value.get("kind", there.get("kind")) == there.get("kind"):
            yield from _changes(tree, value, f"{path}.")
        else:
            yield path, value


def _value_at(tree: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The mapping at a path of a tree; empty if there is none."""
    node: Any = tree
    try:
        for key in resolve(tree, path):
            node = node.get(key) if isinstance(node, Mapping) else None
    except UserError:
        return {}
    return node if isinstance(node, Mapping) else {}


def _kinds_first(change: tuple[str, Any]) -> tuple[bool, int]:
    """Sort key: new components before settings, outer ones first, since a new kind drops the old one's settings."""
    path, value = change
    new = path.endswith(".kind") or isinstance(value, Mapping)
    return not new, path.count(".") if new else 0


def _read_yaml(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The content of a YAML file, and the line of each of its dotted paths."""
    if not path.is_file():
        raise no_file(path, "*.y*ml")
    try:
        text = read_bytes(path, LARGEST).decode("utf-8")
        content, root = load_yaml(text, str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {error}") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{path} line {line}: the character {text[error.position]!r} is not allowed in YAML") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path} line {mark.line + 1}" if mark else str(path)
        raise UserError(f"{place}: {error.problem or error.context}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} holds {'nothing' if content is None else repr(content)[:80]}; a recipe is a mapping")
    return content, dict(_lines(root, ""))


def _lines(node: Node | None, above: str) -> Iterator[tuple[str, int]]:
    """The line of each key of a mapping and each item of a list, at any depth, by dotted path."""
    if isinstance(node, MappingNode):
        children = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, SequenceNode):
        children = [(str(index), value, value) for index, value in enumerate(node.value)]
    else:
        return
    for name, start, value in children:
        yield f"{above}{name}", start.start_mark.line + 1
        yield from _lines(value, f"{above}{name}.")
