"""Whether the end point of a completion is inside a ball.

The point is read from the text of the completion, numbers separated by spaces, as flows write them.
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
    """Rewards a point in the ball by 1; another point, and text that is no point, by 0."""

    centre: Annotated[tuple[float, ...], Field(min_length=1)] = (2.0, 0.0)
    """Centre of the ball."""
    radius: PositiveFloat = 1.5
    """Radius of the ball."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every end point."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
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
