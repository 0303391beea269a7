"""Whether a route passes every check of its query: `posttrain.datasets.routes` has the eight checks.

Source: the metrics of TravelPlanner, arXiv:2402.01622: micro is the share of checks that pass, macro whether all do.
The parts of a score are the checks. Space around the route is not read.
"""

from collections.abc import Sequence
from typing import Literal

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.routes import Query
from posttrain.grading.extraction import shown
from posttrain.types import Group, Score, Trajectory


@frozen
class Route(Reward):
    """Rewards a route for the query in the task's field ``query``."""

    value: Literal["all", "share"] = "all"
    """``all``: 1 for a route that passes every check, else 0; ``share``: the share of checks that pass."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Check each route."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        query = Query.of(trajectory.task.fields.get("query"))
        if query is None:
            return failure(f"task '{trajectory.task.key}' has no query for a route; take the tasks 'routes'")
        route = trajectory.completion.strip()
        checks = query.checks(route)
        failed = [name for name, good in checks.items() if not good]
        parts = {
            name: Score(value=float(good), status="ok" if good else "wrong", explanation=name)
            for name, good in checks.items()
        }
        share = 1 - len(failed) / len(checks)
        return Score(
            value=float(not failed) if self.value == "all" else share,
            status="wrong" if failed else "ok",
            answer=route,
            explanation=f"{shown(route)} fails {', '.join(failed)}" if failed else f"{route} passes every check",
            parts=parts,
        )
