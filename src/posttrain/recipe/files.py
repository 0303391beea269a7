"""Finding recipes: by name, in a Python file, in a YAML file, in the folder of a run.

    grpo                      a recipe that ships with the package
    methods.py:my_grpo        a function of a Python file, or package.module:function
    mine.yaml                 a whole recipe as `posttrain show` prints it, or ``base: NAME`` and changes to it
    runs/grpo-3               what a run was made from

Paths of data and of reward functions inside a recipe stay as they are written: relative to the working directory of
the command, wherever the YAML file lies. Only ``base`` is relative to the file that it is written in.
"""

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.representer import SafeRepresenter

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.recipe.catalogue import Entry, entries, recipe_modules
from posttrain.recipe.overrides import assign, from_tree, override, resolve, to_tree
from posttrain.recipe.plain_yaml import load_yaml
from posttrain.recipe.tree import Recipe


def find_recipe(text: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe that a command line names, with its ``path=value`` changes. Raises `UserError` if there is none."""
    recipe = _find(text, Path(), ())
    return override(recipe, changes) if changes else recipe


def list_recipes() -> list[Entry]:
    """The recipes that ship with the package."""
    return entries("recipe")


def to_yaml(recipe: Recipe) -> str:
    """The recipe as YAML; `find_recipe` on a file with this text gives the same recipe."""
    return tree_to_yaml(to_tree(recipe))


def tree_to_yaml(tree: Mapping[str, Any]) -> str:
    """Plain data as YAML that is read back as it was, whatever its strings hold."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = sys.maxsize  # a folded string does not always come back the same
    stream = StringIO()
    yaml.dump(tree, stream)
    return stream.getvalue()


class _Representer(SafeRepresenter):
    """Writes lists of scalars on one line, odd text in quotes, and no anchors."""

    def represent_list(self, items: Any) -> Any:
        """One line for scalars, a line an item for everything else."""
        flat = not any(isinstance(item, Mapping | list) for item in items)
        return self.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)

    def represent_str(self, text: str) -> Any:
        """In double quotes unless it is made of words and paths: what is plain to ruamel is not always read back."""
        style = None if re.fullmatch(r"(\.{0,2}/)?\w([\w ./:+-]*\w)?", text) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def ignore_aliases(self, data: Any) -> bool:
        """Never refer to an equal value elsewhere in the file."""
        return True


_Representer.add_representer(list, _Representer.represent_list)
_Representer.add_representer(str, _Representer.represent_str)


def _find(text: str, folder: Path, through: tuple[Path, ...]) -> Recipe:
    """The recipe that `text` names, its path taken from `folder`; `through` are the files whose ``base`` led here."""
    path = folder / text
    shipped = recipe_modules()
    if text.endswith((".yaml", ".yml")):
        return _from_yaml(path, through)
    if ":" in text:
        return _from_function(text, folder)
    if (name := text.replace("-", "_")) in shipped:
        return _from_function(f"{shipped[name]}:{name}", folder)
    if (path / "recipe.yaml").exists():
        return _from_yaml(path / "recipe.yaml", through)
    if path.is_dir():
        raise UserError(f"{path} is not the folder of a run: it has no recipe.yaml")
    if text.endswith(".py"):
        raise UserError(f"which function of {text}? Write {text}:NAME")
    if "/" in text:
        raise UserError(f"no folder {path} (working in {Path.cwd()})")
    raise UserError(f"no recipe named '{text}'; {nearest(text, shipped)}")


def _from_function(text: str, folder: Path) -> Recipe:
    """The recipe that a function gives: ``path/file.py:function`` or ``package.module:function``."""
    where, _, name = text.rpartition(":")
    module = _load_file(folder / where) if where.endswith(".py") else _load_module(where)
    function = getattr(module, name, None)
    if not inspect.isfunction(function):
        known = [
            key for key, item in vars(module).items() if inspect.isfunction(item) and item.__module__ == module.__name__
        ]
        raise UserError(f"{where} has no function '{name}'; {nearest(name, known)}")
    wanting = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if wanting:
        raise UserError(
            f"{text} has no default for '{wanting[0]}', so there is no recipe to begin with; "
            f"write def {name}({wanting[0]}: Recipe = grpo()) -> Recipe, with the recipe that you start from"
        )
    with _blaming(Path(inspect.getfile(function))):
        recipe = function()
    if not isinstance(recipe, Recipe):
        raise UserError(f"{text} returned {type(recipe).__name__}; a recipe function returns a Recipe")
    return recipe


def _load_module(name: str) -> ModuleType:
    """Import a module by its name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise UserError(f"{name} needs the module '{error.name}', which is not installed") from error
        raise UserError(f"no module '{name}' on the import path (working in {Path.cwd()})") from None


def _load_file(path: Path) -> ModuleType:
    """Run a Python file as a module; the files beside it can be imported by it."""
    if not path.is_file():
        raise _no_file(path, "*.py")
    name = f"recipe_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks annotations up there
    if str(path.parent.resolve()) not in sys.path:
        sys.path.append(str(path.parent.resolve()))
    with _blaming(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turn whatever a recipe's own code raises into a `UserError` with the line of the file where it happened."""
    try:
        yield
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path.absolute())]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
        match error:
            case UserError():
                what = str(error)
            case ValidationError():
                what = "; ".join(
                    f"{'.'.join(map(str, e['loc']))}: {e['msg']}".removeprefix(": ") for e in error.errors()
                )
            case SyntaxError():
                what = f"SyntaxError: {error.msg}"
            case _:
                what = f"{type(error).__name__}: {error}"
        raise UserError(f"{path} line {line}: {what}") from error


def _from_yaml(path: Path, through: tuple[Path, ...]) -> Recipe:
    """The recipe of a YAML file: a whole tree, or changes to its ``base``."""
    if path.resolve() in through:
        chain = " -> ".join(file.name for file in (*through, path))
        raise UserError(f"{path} is its own base: {chain}")
    content, lines = _read_yaml(path)
    base = content.pop("base", None)
    places = {keys: f"{path} line {line}" for keys, line in lines.items()}
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
    tree = to_tree(_find(base, path.parent, (*through, path.resolve())))
    targets: dict[str, str] = {}
    for written, value in sorted(_changes(tree, content, ""), key=_kinds_first):
        try:
            target = resolve(tree, written)
            assign(tree, target, value)
        except UserError as error:
            raise UserError(f"{places[written]}: {error}") from None
        full = ".".join(target)
        targets |= {
            full + at[len(written) :]: place for at, place in places.items() if f"{at}.".startswith(f"{written}.")
        }
    return from_tree(tree, places=targets)


def _changes(tree: Mapping[str, Any], content: Mapping[Any, Any], above: str) -> Iterator[tuple[str, Any]]:
    """Dotted paths and new values. A mapping changes what is there; one of another kind replaces it."""
    for key, value in content.items():
        path = f"{above}{key}"
        there = _value_at(tree, path)
        if value and isinstance(value, Mapping) and there and value.get("kind", there.get("kind")) == there.get("kind"):
            yield from _changes(tree, value, f"{path}.")
        else:
            yield path, value


def _value_at(tree: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The mapping that is at a path of a tree; an empty one where there is none."""
    node: Any = tree
    try:
        for key in resolve(tree, path):
            node = node.get(key) if isinstance(node, Mapping) else None
    except UserError:
        return {}
    return node if isinstance(node, Mapping) else {}


def _kinds_first(change: tuple[str, Any]) -> tuple[bool, int]:
    """Sorts new components before settings, outer ones first: a new kind drops the settings of the old one."""
    path, value = change
    new = path.endswith(".kind") or isinstance(value, Mapping)
    return not new, path.count(".") if new else 0


def _read_yaml(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """What a YAML file holds, and the line of each of its dotted paths."""
    if not path.is_file():
        raise _no_file(path, "*.y*ml")
    try:
        text = path.read_text(encoding="utf-8")
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


def _no_file(path: Path, pattern: str) -> UserError:
    """The error for a file that is not there, with the nearest one that is."""
    beside = [file.name for file in path.parent.glob(pattern)] if path.parent.is_dir() else []
    return UserError(
        f"no file {path} (working in {Path.cwd()})" + (f"; {nearest(path.name, beside)}" if beside else "")
    )
