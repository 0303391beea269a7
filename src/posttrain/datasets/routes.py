"""Routes of five stops for a query, and the eight checks of one.

A query is ``a>f+c-d<11``: from a to f, through c, not through d, which is closed, at a price of 11 at most. There are
eight stops, with prices of 1 to 3. A route is five stops without anything between them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

STOPS: Final = "abcdefgh"
LENGTH: Final = 5
CHECKS: Final = ("complete", "known", "new", "start", "goal", "visit", "open", "budget")
"""Names of the checks, in their order."""


def price(route: str) -> int:
    """Sum of the prices of the stops: 1, 2, 3, 1, 2, 3, ... from a on."""
    return sum(1 + STOPS.index(stop) % 3 for stop in route)


@dataclass(frozen=True, kw_only=True)
class Query:
    """What is asked for."""

    origin: str
    goal: str
    visit: str
    closed: str
    budget: int

    @property
    def text(self) -> str:
        """The query in one line."""
        return f"{self.origin}>{self.goal}+{self.visit}-{self.closed}<{self.budget}\n"

    def checks(self, route: str) -> dict[str, bool]:
        """Which checks a route passes. One that is not five known stops passes none of those after ``known``."""
        complete, known = len(route) == LENGTH, bool(route) and set(route) <= set(STOPS)
        whole = complete and known
        passed = {
            "complete": complete,
            "known": known,
            "new": whole and len(set(route)) == LENGTH,
            "start": whole and route[0] == self.origin,
            "goal": whole and route[-1] == self.goal,
            "visit": whole and self.visit in route,
            "open": whole and self.closed not in route,
            "budget": whole and price(route) <= self.budget,
        }
        return {name: passed[name] for name in CHECKS}

    @classmethod
    def of(cls, given: Any) -> "Query | None":
        """A query from the field of a task; None for anything else."""
        if not isinstance(given, Mapping) or set(given) != set(cls.__dataclass_fields__):
            return None
        stops = [given[name] for name in ("origin", "goal", "visit", "closed")]
        valid = all(isinstance(stop, str) and len(stop) == 1 and stop in STOPS for stop in stops)
        return cls(**given) if valid and type(given["budget"]) is int else None


def draw_query(rng: Random) -> tuple[Query, str]:
    """A query, and a route that passes every check."""
    route = "".join(rng.sample(STOPS, LENGTH))
    closed = rng.choice([stop for stop in STOPS if stop not in route])
    budget = price(route) + rng.randrange(2)
    query = Query(origin=route[0], goal=route[-1], visit=rng.choice(route[1:-1]), closed=closed, budget=budget)
    return query, route


def draw_route(query: Query, faults: Mapping[str, float], rng: Random) -> str:
    """A route of a planner that neglects each of these with a probability: ``way`` (the way back instead), ``new``,
    ``visit``, ``open`` and ``budget``.
    """
    neglected = {name for name, chance in faults.items() if rng.random() < chance}
    first, last = (query.goal, query.origin) if "way" in neglected else (query.origin, query.goal)
    free = [stop for stop in STOPS if stop not in (first, last, query.closed, query.visit)]
    route = ""
    for _ in range(50):
        middle = [] if "visit" in neglected else [query.visit]
        middle += [query.closed] if "open" in neglected else []
        middle += [first] if "new" in neglected else []
        middle += rng.sample(free, LENGTH - 2 - len(middle))
        rng.shuffle(middle)
        route = f"{first}{''.join(middle)}{last}"
        if (price(route) > query.budget) == ("budget" in neglected):
            break
    return route
