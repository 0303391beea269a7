r"""Queries for a route of five stops, each with a route by a planner that neglects things, and the checks of it.

    a>f+c-d<11\n  ->  abcgf     from a to f, through c, not through d, for 11 at most

The field ``checks`` has the result of each of eight checks of the demonstration (`posttrain.datasets.routes`), and
``query`` what was asked for. About one route in twenty passes all; most go the wrong way round, so that the most likely
route is not a good one.

Source: an own form of plans with commonsense checks, as in TravelPlanner with FAFT, arXiv:2408.06318.
"""

from collections.abc import Sequence
from dataclasses import asdict
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.routes import draw_query, draw_route
from posttrain.types import Task

FAULTS: Final = {"way": 0.6, "new": 0.45, "visit": 0.4, "open": 0.45, "budget": 0.45}
"""How often the planner neglects each."""


@frozen
class Routes(Tasks):
    """Queries with sampled routes."""

    size: Annotated[int, Field(ge=1, le=1_000_000)] = 3000
    """Number of queries."""
    faults: Annotated[float, Field(ge=0.0, le=1.5)] = 1.0
    """Factor on how often the planner neglects each thing; 0 is a planner without faults."""
    keep: Literal["all", "passing"] = "all"
    """Whether every route is a demonstration, or only those that pass every check; the others have none."""
    seed: NonNegativeInt = 0
    """Which queries and routes are drawn."""

    def load(self) -> Sequence[Task]:
        """The tasks, in order."""
        return keyed(self._draw(number) for number in range(self.size))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"queries for a route of five stops (seed {self.seed})", self.load())

    def _draw(self, number: int) -> Task:
        rng = Random(f"routes:{self.seed}:{number}")
        query, _ = draw_query(rng)
        route = draw_route(query, {name: chance * self.faults for name, chance in FAULTS.items()}, rng)
        checks = query.checks(route)
        shown = self.keep == "all" or all(checks.values())
        return Task(
            key="",
            prompt=query.text,
            demonstrations=(route,) if shown else (),
            fields={"query": asdict(query), "checks": checks},
        )
