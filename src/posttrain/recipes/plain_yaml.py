"""YAML restricted to plain data: no objects, no custom tags, no recursion."""

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, Node

from posttrain.errors import UserError

MOST_VALUES = 200_000
"""Values with all references written out; a few lines of references to references can make billions."""


def load_yaml(text: str, place: str) -> tuple[Any, Node | None]:
    """The value of a YAML text, and its tree of nodes, which know their lines.

    Raises `UserError` for references out of hand, and ruamel's errors for what is not YAML.
    """
    try:
        root = YAML(typ="safe", pure=True).compose(text)
        _count(root, {}, place)
        return YAML(typ="safe", pure=True).load(text), root
    except RecursionError:
        raise UserError(f"{place}: nested too deeply") from None
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # scalars that only look like dates, ...
        raise UserError(f"{place}: cannot be read as YAML: {error}") from None


def _count(node: Any, known: dict[int, int], place: str) -> int:
    """Number of values under a node, itself included. Raises `UserError` when it is too large or has no end."""
    if not isinstance(node, CollectionNode):
        return 1
    if id(node) in known:
        if known[id(node)] < 0:
            raise UserError(f"{place} line {node.start_mark.line + 1} refers to itself, so it has no end")
        return known[id(node)]
    known[id(node)] = -1  # being counted
    total = 1
    for child in node.value:
        total += sum(_count(part, known, place) for part in (child if isinstance(child, tuple) else (child,)))
        if total > MOST_VALUES:
            raise UserError(
                f"{place} line {node.start_mark.line + 1} stands for more than {MOST_VALUES:,} values with its "
                "references written out"
            )
    known[id(node)] = total
    return total
