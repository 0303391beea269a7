"""YAML restricted to plain data: no objects, no custom tags, no recursion."""

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.nodes import CollectionNode, Node, ScalarNode

from posttrain.errors import UserError

MOST_VALUES = 200_000
"""Most values after expanding references; a few lines of nested references can expand to billions."""


def load_yaml(text: str, place: str) -> tuple[Any, Node | None]:
    """The value of a YAML text, and its tree of nodes, which have line numbers.

    Raises `UserError` for too many references, and ruamel's errors for invalid YAML.
    """
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Constructor = _Counted
        yaml.constructor.place = place
        return yaml.load(text), yaml.constructor.root
    except RecursionError:
        raise UserError(f"{place}: nested too deeply") from None
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # scalars that only look like dates, ...
        raise UserError(f"{place}: cannot be read as YAML: {error}") from None


class _Counted(SafeConstructor):
    """Counts the values of a document before it makes them, and keeps its tree."""

    place = ""
    root: Node | None = None

    def construct_document(self, node: Node) -> Any:
        """The value of the tree."""
        _count(node, {}, self.place)
        self.root = node
        return super().construct_document(node)


def _count(node: Any, known: dict[int, int], place: str) -> int:
    """Number of values under a node, itself included. Raises `UserError` if it is too large or recursive."""
    if not isinstance(node, CollectionNode):
        return 1
    if id(node) in known:
        if known[id(node)] < 0:
            raise UserError(f"{place} line {node.start_mark.line + 1} refers to itself, which is not allowed")
        return known[id(node)]
    known[id(node)] = -1  # being counted
    total = 1
    for child in node.value:
        if isinstance(child, tuple) and (not isinstance(child[0], ScalarNode) or str(child[0].tag).endswith(":null")):
            raise UserError(
                f"{place} line {child[0].start_mark.line + 1}: a key must be text, not a list, mapping or null"
            )
        total += sum(_count(part, known, place) for part in (child if isinstance(child, tuple) else (child,)))
        if total > MOST_VALUES:
            raise UserError(
                f"{place} line {node.start_mark.line + 1} expands to more than {MOST_VALUES:,} values with its "
                "references"
            )
    known[id(node)] = total
    return total
