"""The sum that a completion writes, as a share of the largest: ``9+9`` has 1 of 18, ``2+7`` has one half.

The whole completion is the sum, of exactly that many one-digit numbers; anything else has 0. It is the true score
where a judge or a reward model scores by what it learned (`tasks/compared_sums`).
"""

import re
from collections.abc import Sequence

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory


@frozen
class WrittenSum(Reward):
    """Scores the size of a written sum."""

    terms: int = Field(default=2, ge=1, le=8)
    """Numbers in the sum."""
    correct_at: float = Field(default=0.75, gt=0.0, le=1.0)
    """Smallest value that counts as correct."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read each sum."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        text = trajectory.completion.strip()
        if not re.fullmatch(rf"[0-9](?:\+[0-9]){{{self.terms - 1}}}", text):
            return Score(value=0.0, status="wrong", explanation=f"is no sum of {self.terms} one-digit numbers")
        total = sum(map(int, text.split("+")))
        value = total / (9 * self.terms)
        status = "ok" if value >= self.correct_at else "wrong"
        return Score(value=value, status=status, answer=str(total), explanation=f"{total} of {9 * self.terms}")  # type: ignore[arg-type]
