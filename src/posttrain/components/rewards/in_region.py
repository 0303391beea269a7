"""Whether the point that a completion ends at lies in a region: a ball around a centre.

The point is read from the text of the completion, as flows write theirs: numbers with spaces between them.
"""

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, PositiveFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory


@frozen
class InRegion(Reward):
    """Pays 1 for a point in the ball, 0 for another, or nothing that is a point."""

    centre: Annotated[tuple[float, ...], Field(min_length=1)] = (2.0, 0.0)
    """Middle of the ball."""
    radius: PositiveFloat = 1.5
    """Largest distance from it."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Judge every end point."""
        return [self._judge(trajectory) for trajectory in group]

    def _judge(self, trajectory: Trajectory) -> Score:
        words = trajectory.completion.split(maxsplit=len(self.centre))
        try:
            point = [float(word[:64]) for word in words]
        except ValueError:
            point = []
        if len(point) != len(self.centre):
            return Score(value=0.0, status="wrong", explanation=f"the completion is not {len(self.centre)} numbers")
        distance = math.dist(point, self.centre)
        inside = distance <= self.radius
        explanation = f"{distance:.3g} from the centre, {'within' if inside else 'beyond'} {self.radius:g}"
        answer = " ".join(words)
        return Score(value=float(inside), status="ok" if inside else "wrong", answer=answer, explanation=explanation)
