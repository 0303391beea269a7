"""Monte Carlo tree search over plan steps: statistics of siblings, without a model.

Source: CPL, arXiv:2409.08642, and its released code (keesh0410/CPL-Reasoning at 61b99b4, mcts_plan/mcts). With Q the
mean of the backed-up values of a node (0 if unvisited), N its visits and `prior` the mean probability of the tokens of
its step, as a geometric mean and not normalized over siblings, selection takes the child with the highest

    Q + c prior sqrt(N_parent) / (1 + N)

ties at random. Terminal children are never selected; a node without a selectable child is terminal itself. A terminal
child is scored when it is made, +1 if it is correct and -1 otherwise, and backed up through all its ancestors; of an
expanded node that is not terminal the value model's estimate is backed up.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S")


@dataclass(eq=False, kw_only=True)
class Node(Generic[S]):
    """A prefix of a plan."""

    state: S
    prior: float = 1.0
    parent: "Node[S] | None" = None
    children: "list[Node[S]]" = field(default_factory=list)
    outcome: float | None = None
    """Of a terminal node: 1 or -1."""
    broken: bool = False
    """Whether it is terminal for its form or its depth: it is in no pair."""
    closed: bool = False
    """Whether it cannot be selected."""
    visits: int = 0
    total: float = 0.0

    @property
    def q(self) -> float:
        """Mean of the backed-up values; 0 if unvisited."""
        return self.total / self.visits if self.visits else 0.0

    def back_up(self, value: float) -> None:
        """Add a value to the node and all above it."""
        node: Node[S] | None = self
        while node is not None:
            node.visits, node.total, node = node.visits + 1, node.total + value, node.parent

    def below(self) -> "Iterator[Node[S]]":
        """The node and its descendants, parents first."""
        yield self
        for child in self.children:
            yield from child.below()


async def grow(
    root: Node[S],
    *,
    iterations: int,
    exploration: float,
    expand: Callable[[Node[S]], Awaitable[Sequence[Node[S]]]],
    estimate: Callable[[Node[S]], Awaitable[float]],
    uniform: Callable[[], float],
) -> None:
    """Grow the tree below a root. `expand` makes the children of a node, terminal ones with their outcome."""
    for _ in range(iterations):
        node = root
        while node.children and not node.closed:
            node = select(node, exploration, uniform)
        if node.closed:
            return
        node.children = list(await expand(node))
        for child in node.children:
            child.parent = node
            if child.outcome is not None:
                child.closed = True
                child.back_up(child.outcome)
        close(node)
        if not node.closed:
            node.back_up(await estimate(node))


def select(node: Node[S], exploration: float, uniform: Callable[[], float]) -> Node[S]:
    """The child to descend to, of a node with one that is not closed."""
    left = [child for child in node.children if not child.closed]
    scores = [c.q + exploration * c.prior * math.sqrt(node.visits) / (1 + c.visits) for c in left]
    best = [child for child, score in zip(left, scores, strict=True) if score == max(scores)]
    return best[int(uniform() * len(best))] if len(best) > 1 else best[0]


def close(node: "Node[S] | None") -> None:
    """Close a node, and those above it, where no child is left to select."""
    while node is not None and all(child.closed for child in node.children):
        node.closed, node = True, node.parent


def pairs_of(children: Sequence[Node[S]], factor: float) -> list[tuple[Node[S], Node[S], float, float]]:
    """Pairs of siblings, with the value of each: every positive with every negative plan step; of solutions the highest
    and the lowest, if one is positive and the other negative, with both values times `factor`.

    A node that is unvisited, broken, or has the value 0 is in no pair.
    """
    usable = [child for child in children if child.visits and not child.broken]
    steps, solutions = ([c for c in usable if (c.outcome is None) == of_steps] for of_steps in (True, False))
    found = [(a, b, a.q, b.q) for a in steps for b in steps if a.q > 0 > b.q]
    if solutions:
        best, worst = max(solutions, key=lambda c: c.q), min(solutions, key=lambda c: c.q)
        if best.q > 0 > worst.q:
            found.append((best, worst, factor * best.q, factor * worst.q))
    return found
