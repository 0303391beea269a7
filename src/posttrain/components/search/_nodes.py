"""The graph of nodes that tree searches grow: states with their statistics."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from posttrain.components.search import State
from posttrain.types import IntArray, Segment, StopReason


@dataclass(eq=False, kw_only=True)
class Node:
    """A state with its statistics."""

    segments: tuple[Segment, ...]
    """The prompt, then the lines so far."""
    way: tuple[int, ...] = ()
    """Index of the child that was taken at each state."""
    parent: "Node | None" = None
    ended: bool = False
    """Whether the state is terminal."""
    children: list["Node"] = field(default_factory=list)
    selectable: bool = True
    visits: int = 0
    total: float = 0.0
    own: float = math.nan
    """Value of a terminal state, or the value model's value of the state; NaN where unknown."""
    kind: str = ""
    """Kind of the step that it ends with, in searches with a grammar."""
    stop: StopReason | None = None
    """Why its text ended, in searches that make nodes before they are written; None for one that is not."""

    @property
    def value(self) -> float:
        """Mean of the backed-up values; 0 without any."""
        return self.total / self.visits if self.visits else 0.0

    @property
    def token_ids(self) -> IntArray:
        """Token ids, prompt included."""
        return np.concatenate([s.token_ids for s in self.segments])

    @property
    def text(self) -> str:
        """The text after the prompt."""
        return "".join(s.text for s in self.segments[1:])

    @property
    def name(self) -> str:
        """Name of the node: ``/1/0`` is the first child of the prompt's second child."""
        return "/" + "/".join(map(str, self.way))

    def below(self) -> Iterator["Node"]:
        """The node and its descendants, parents first."""
        yield self
        for child in self.children:
            yield from child.below()

    def back_up(self, total: float, count: int) -> None:
        """Add a sum of `count` values to the node and its ancestors."""
        node: Node | None = self
        while node is not None:
            node.total, node.visits = node.total + total, node.visits + count
            node = node.parent

    def close(self) -> None:
        """Exclude the node from selection, and each ancestor that is left without a selectable child."""
        self.selectable = False
        if self.parent is not None and not any(child.selectable for child in self.parent.children):
            self.parent.close()

    @property
    def state(self) -> State:
        """The node as a part of the result; it must have been visited."""
        return State(token_ids=self.token_ids, text=self.text, value=self.value, visits=self.visits)
