"""A component from the command line: its kind and its ``path=value`` settings."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from posttrain.component import Component, nearest
from posttrain.component.user_code import accept, find_code
from posttrain.components.rewards import Reward
from posttrain.errors import UserError
from posttrain.recipes.files import components_of, find_recipe, named_code
from posttrain.recipes.overrides import parse_value

C = TypeVar("C", bound=Component)


def component(contract: type[C], kind: str, settings: Sequence[str], fixed: Mapping[str, Any] | None = None) -> C:
    """The member `kind` of a family with ``name=value`` settings, in addition to the `fixed` ones.

    Raises `UserError` for unknown settings and invalid values.
    """
    given: dict[str, str] = {}
    for setting in settings:
        matched = re.fullmatch(r"(\w+)=(.*)", setting, flags=re.DOTALL)
        if not matched:
            raise UserError(f"'{setting}' is not a setting of {kind}; write name=value")
        given[matched[1]] = matched[2]
    try:
        declared: dict[str, Any] = vars(contract.find(kind))["__pydantic_fields__"]
        texts = {name for name, field in declared.items() if field.annotation is str}
        tree = {name: text if name in texts else parse_value(text) for name, text in given.items()}
        made: C = TypeAdapter(contract).validate_python({**(fixed or {}), **tree, "kind": kind})
    except PydanticCustomError as error:
        raise UserError(error.message()) from None
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False):
            place = ".".join(str(part) for part in item["loc"] if part != kind)
            got = "" if item["type"] in ("unknown_field", "kind", "missing") else f", got {item['input']!r:.80}"
            lines.append(f"{kind}{f'.{place}' if place else ''}: {item['msg']}{got}")
        raise UserError("\n".join(lines)) from None
    accept([find_code(spelling) for spelling in named_code(made)], "the command line")
    return made


def made_reward(text: str, settings: Sequence[str]) -> Reward:
    """The reward that a text stands for, as in a recipe. Raises `UserError`."""
    value: Any = parse_value(text)
    if isinstance(value, str):
        value = Reward.from_text(value)
    if not isinstance(value, Mapping) or "kind" not in value:
        raise UserError(f"'{text}' is not a reward; write a kind, file.py:name, or {{kind: ..., settings}}")
    fixed = {name: item for name, item in value.items() if name != "kind"}
    return component(Reward, str(value["kind"]), settings, fixed)


def part_named(contract: type[C], name: str) -> C:
    """The component of a family that a text stands for: a kind, ``{kind: ..., ...}``, or a recipe that has one.

    Raises `UserError` for a text that is none of these, and for a recipe without such a part.
    """
    if name.startswith("{"):
        tree = parse_value(name)
        if isinstance(tree, Mapping) and isinstance(tree.get("kind"), str):
            own = {key: value for key, value in tree.items() if key != "kind"}
            return component(contract, tree["kind"], [], own)
        raise UserError(f"{name}: write {{kind: KIND, setting: value}}")
    if name in contract.kinds():
        return component(contract, name, [])
    try:
        recipe = find_recipe(name)
    except UserError as error:
        family = contract.__name__.lower()
        raise UserError(
            f"'{name}' is no {family} ({nearest(name, contract.kinds())}) and no recipe that has one: {error}"
        ) from None
    for part in components_of(recipe):
        if isinstance(part, contract):
            return part
    raise UserError(f"the recipe '{name}' has no {contract.__name__.lower()}")


def options_as_settings(words: Sequence[str]) -> list[str]:
    """Words in which ``--name value`` and ``--name=value`` are written as the setting ``name=value``.

    Raises `UserError` for an option without a value.
    """
    found, left = list[str](), list(words)
    while left:
        word = left.pop(0)
        option = re.fullmatch(r"--([a-z][a-z0-9_.-]*)(?:=(.*))?", word, re.DOTALL)
        if option is None:
            found.append(word)
            continue
        value = option[2]
        if value is None:
            if not left or left[0].startswith("--"):
                raise UserError(f"{word} has no value; write {word} VALUE, or {option[1]}=VALUE")
            value = left.pop(0)
        found.append(f"{option[1].replace('-', '_')}={value}")
    return found


def split_settings(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Models and the ``name=value`` settings after them."""
    settings = [word for word in words if re.match(r"\w+=", word)]
    return [word for word in words if word not in settings], settings
