"""Number of visits until a search that only counts visits solves a task.

Each visit descends from the root to the least visited child, the first of equals, until a state without children. One
that is not terminal is expanded, and a random child is taken; from there the rollout goes on to its end. A success ends
the search; after a failure every state on the path has one more visit. There is no value: with UCT's rule the value of
every state is 0 too, since the search ends with the first success, and the rule then orders children by their visits.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S")


@dataclass(eq=False, kw_only=True)
class Visited(Generic[S]):
    """A state of the tree."""

    state: S
    ended: bool = False
    visits: int = 0
    children: "list[Visited[S]]" = field(default_factory=list)


async def visits_to_solve(
    root: Visited[S],
    *,
    expand: Callable[[S], Awaitable[Sequence[Visited[S]]]],
    solves: Callable[[Visited[S]], Awaitable[bool]],
    budget: int,
    uniform: Callable[[], float],
) -> int:
    """K, counted from 1: the visit that solves the task; `budget` + 1 where none does.

    `solves` completes a state and verifies it, of a terminal one again at each visit; `uniform` draws the child.
    """
    for visit in range(1, budget + 1):
        path = [root]
        while path[-1].children:
            path.append(min(path[-1].children, key=lambda child: child.visits))
        if not path[-1].ended:
            path[-1].children = list(await expand(path[-1].state))
            if path[-1].children:
                path.append(path[-1].children[int(uniform() * len(path[-1].children))])
        if await solves(path[-1]):
            return visit
        for node in path:
            node.visits += 1
    return budget + 1
