"""Completion of words in a shell: recipes, settings and their values, models, runs.

    eval "$(_POSTTRAIN_COMPLETE=bash_source posttrain)"     # bash; zsh_source and fish_source for these

A failure completes nothing: there is no place to show it.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

if TYPE_CHECKING:
    Item = CompletionItem[str]
    Completer = Callable[[click.Context, click.Parameter, str], list[Item]]


def _quiet(words: Callable[[click.Context, str], Iterable[str]]) -> "Completer":
    """A completer of the words that begin with what was typed; of files where there are none."""

    @functools.wraps(words)
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[Item]":
        try:
            found = sorted({word for word in words(context, incomplete) if word.startswith(incomplete)})
        except Exception:
            return []
        return [CompletionItem(word) for word in found] or [CompletionItem("", type="file")]

    return complete


def _recipes(context: click.Context, incomplete: str) -> Iterator[str]:
    from posttrain.recipes.catalogue import recipe_modules

    yield from recipe_modules()
    yield from _runs_near(incomplete)
    yield from _files_near(incomplete, "*.yaml")


def _models(context: click.Context, incomplete: str) -> Iterator[str]:
    yield from _models_near(incomplete)


def _role_models(context: click.Context, incomplete: str) -> Iterator[str]:
    """Models, after ``ROLE=`` too."""
    role, equals, typed = incomplete.rpartition("=")
    yield from (role + equals + found for found in _models_near(typed))


def _run_folders(context: click.Context, incomplete: str) -> Iterator[str]:
    yield from _runs_near(incomplete)


def _families(context: click.Context, incomplete: str) -> Iterator[str]:
    from posttrain.recipes.catalogue import families

    yield from families()


def _changes(context: click.Context, incomplete: str) -> Iterator[str]:
    """Paths of settings up to the next dot, and values after ``=``, of the recipe that was typed before."""
    from posttrain.component.user_code import Policy, allowing
    from posttrain.recipes.files import find_recipe

    given = context.params
    name = str(given.get("recipe") or given.get("run") or "grpo")
    if not (given.get("recipe") or (Path(name) / "recipe.yaml").is_file()):
        name = "grpo"
    with allowing(Policy.NEVER):
        recipe = find_recipe(name)
    path, equals, _ = incomplete.partition("=")
    if equals:
        yield from (f"{path}={value}" for value in _values(recipe, path, incomplete))
    else:
        yield from _paths(recipe, path)


complete_recipe = _quiet(_recipes)
complete_model = _quiet(_models)
complete_role_model = _quiet(_role_models)
complete_runs = _quiet(_run_folders)
complete_family = _quiet(_families)
complete_changes = _quiet(_changes)


def _paths(recipe: Any, typed: str) -> Iterator[str]:
    """The settings below what is typed before its last dot; at the top also those of stages, and short names."""
    from posttrain.recipes.overrides import SHORTHANDS, resolve, to_tree

    tree = to_tree(recipe)
    above, dot, _ = typed.rpartition(".")
    node: Any = tree
    for part in resolve(tree, above) if dot else ():
        node = node[part]
    names = dict(node) if isinstance(node, Mapping) else {}
    if not dot:
        names |= {name: value for stage in tree["stages"].values() for name, value in stage.items()} | tree["stages"]
        names |= dict.fromkeys((*SHORTHANDS, "setting"))
    for name, value in names.items():
        yield f"{above}{dot}{name}{'.' if isinstance(value, Mapping) else '='}"
        if isinstance(value, Mapping) and "kind" in value:
            yield f"{above}{dot}{name}="


def _values(recipe: Any, path: str, incomplete: str) -> Iterator[str]:
    """Values of a setting: kinds of a component, words of a choice, true and false, models."""
    from posttrain.component import Component
    from posttrain.recipes.catalogue import recipe_modules
    from posttrain.recipes.differences import value_at
    from posttrain.recipes.overrides import resolve, to_tree

    if path == "setting":
        yield from (name for name, module in recipe_modules().items() if ".settings." in module)
        return
    keys = tuple(resolve(to_tree(recipe), path))
    if keys[-1] == "source" and keys[0] == "models":
        yield from _models_near(incomplete.partition("=")[2])
        return
    found = value_at(recipe, keys[:-1] if keys[-1] == "kind" else keys)
    if isinstance(found, Component):
        yield from type(found).kinds()
        return
    hint = get_type_hints(type(value_at(recipe, keys[:-1])), include_extras=False).get(keys[-1])
    yield from _words_of(hint)


def _words_of(hint: Any) -> Iterator[str]:
    """What a type allows, where it names it."""
    if hint is bool:
        yield from ("true", "false")
    elif hint is type(None):
        yield "null"
    elif get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    elif isinstance(hint, type) and hasattr(hint, "kinds"):
        yield from hint.kinds()
    else:
        for part in get_args(hint):
            yield from _words_of(part)


def _models_near(typed: str) -> Iterator[str]:
    """Bundled models, model folders, files in the GGUF format and runs."""
    bundled = Path(__file__).parents[1] / "policies" / "bundled"
    yield from (path.parent.name for path in bundled.glob("*/config.json"))
    yield from (str(Path(file).parent) for file in _files_near(typed, "*/config.json"))
    yield from _files_near(typed, "*.gguf")
    yield from _runs_near(typed)


def _runs_near(typed: str) -> Iterator[str]:
    """Runs in the folder of what is typed, and in ``runs`` where nothing is."""
    for place in {typed, "" if "/" in typed else "runs/"}:
        yield from (str(Path(file).parent) for file in _files_near(place, "*/recipe.yaml"))


def _files_near(typed: str, pattern: str) -> Iterator[str]:
    folder = typed.rpartition("/")[0]
    for path in sorted(Path(folder or (".", "/")[typed.startswith("/")]).glob(pattern)):
        yield str(path)


class _Bash(BashComplete):
    """Bash splits words at ``=`` and completes the part after it."""

    _before = ""
    """The part of the incomplete word that bash has as words of its own."""

    source_template = BashComplete.source_template.replace(
        "            COMPREPLY+=($value)\n",
        '            COMPREPLY+=("$value")\n            [[ $value == *[=.] ]] && compopt -o nospace\n',
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor and the incomplete one, joined at ``=``."""
        words, last = super().get_completion_args()
        joined = _joined([*words, last])
        self._before = joined[-1][: -len(last)] if last not in ("", "=") else joined[-1] if "=" in joined[-1] else ""
        return joined[:-1], joined[-1]

    def format_completion(self, item: "Item") -> str:
        """The part of a completion that bash inserts."""
        return f"{item.type},{str(item.value).removeprefix(self._before)}"


def _joined(words: Sequence[str]) -> list[str]:
    """Words with ``=`` and its neighbours put together: ``lr``, ``=``, ``1`` is ``lr=1``."""
    found: list[str] = []
    for word in words:
        if found and (word == "=" or found[-1].endswith("=")):
            found[-1] += word
        else:
            found.append(word)
    return found


def install() -> None:
    """Make the completion of bash this one."""
    add_completion_class(_Bash)


def role_models(text: str) -> Callable[[Any], Any]:
    """The option ``--model``, of models by role."""
    return click.option(
        "--model", "models", multiple=True, metavar="[ROLE=]SOURCE", shell_complete=complete_role_model, help=text
    )
