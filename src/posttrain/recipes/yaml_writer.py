"""Writes plain data as YAML, on its way to a recipe's file and to the screen."""

import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter


def tree_to_yaml(tree: Mapping[str, Any]) -> str:
    """Plain data as YAML that is read back unchanged, whatever its strings contain.

    Scalars are written by ruamel, each once a process: its emitter takes most of the time of starting a run.
    """
    try:
        return "\n".join(_mapping(tree, "")) + "\n" if tree else _dump(tree)
    except _Nested:
        return _dump(tree)


class _Nested(Exception):
    """A list of lists, or a key that is not short and plain, which recipes do not have."""


def _mapping(tree: Mapping[str, Any], indent: str) -> Iterator[str]:
    """The lines of a mapping that is not empty."""
    for key, value in tree.items():
        if not isinstance(key, str) or not re.fullmatch(r"\w[\w./-]{,99}", key):
            raise _Nested
        start = f"{indent}{_scalar(key, False)}:"
        if isinstance(value, Mapping) and value:
            yield start
            yield from _mapping(value, f"{indent}  ")
        elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
            yield start
            for item in value:
                yield from _item(item, indent)
        elif isinstance(value, Mapping | list):
            inside = ", ".join(_scalar(item, True) for item in value)
            yield f"{start} {f'[{inside}]' if isinstance(value, list) else '{}'}"
        else:
            yield f"{start} {_scalar(value, False)}"


def _item(item: Any, indent: str) -> Iterator[str]:
    """The lines of an item of a list with mappings in it."""
    if isinstance(item, list):
        raise _Nested
    if isinstance(item, Mapping) and item:
        first, *others = _mapping(item, f"{indent}  ")
        yield f"{indent}- {first[len(indent) + 2 :]}"
        yield from others
    else:
        yield f"{indent}- {'{}' if isinstance(item, Mapping) else _scalar(item, False)}"


def _scalar(value: Any, in_a_list: bool) -> str:
    """A scalar as it is written after a key, or in a list on one line."""
    return _written(type(value).__name__, value, in_a_list, str(value))  # 1, 1.0 and True are equal


@lru_cache(maxsize=8192)
def _written(kind: str, value: Any, in_a_list: bool, text: str) -> str:
    dumped = _dump({"k": [value] if in_a_list else value})
    return dumped[len("k: [") : -len("]\n")] if in_a_list else dumped[len("k: ") : -len("\n")]


def _dump(tree: Mapping[str, Any]) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = sys.maxsize  # a folded string does not always come back the same
    stream = StringIO()
    yaml.dump(tree, stream)
    return stream.getvalue()


class _Representer(SafeRepresenter):
    """Writes lists of scalars on one line, unusual text in quotes, and no anchors."""

    def represent_list(self, items: Any) -> Any:
        """One line for a list of scalars, one line per item otherwise."""
        flat = not any(isinstance(item, Mapping | list) for item in items)
        return self.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)

    def represent_str(self, text: str) -> Any:
        """In double quotes unless it consists of words and paths, since ruamel does not read all plain text back."""
        style = None if re.fullmatch(r"(\.{0,2}/)?\w([\w ./:+-]*\w)?", text) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def ignore_aliases(self, data: Any) -> bool:
        """Write no references to equal values."""
        return True


_Representer.add_representer(list, _Representer.represent_list)
_Representer.add_representer(str, _Representer.represent_str)
