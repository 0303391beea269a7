"""A component from the command line: its kind and its ``path=value`` settings."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from posttrain.component import Component
from posttrain.component.user_code import accept, find_code
from posttrain.errors import UserError
from posttrain.recipes.files import named_code
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


def split_settings(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Models and the ``name=value`` settings after them."""
    settings = [word for word in words if re.match(r"\w+=", word)]
    return [word for word in words if word not in settings], settings
