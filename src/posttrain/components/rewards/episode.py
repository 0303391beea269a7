"""What an episode came to: the sum of what its turns were paid.

A turn's pay is credited to the turn by itself, so in training the judgement adds nothing to it; an evaluation, which
credits nobody, takes the sum as its value.
"""

from collections.abc import Sequence
from typing import Literal

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory


@frozen
class Episode(Reward):
    """The return of an episode."""

    value: Literal["nothing", "return"] = "nothing"
    """What the judgement is worth: nothing beside the turns (training), or their sum (evaluation)."""
    solved_at: float = 0.0
    """An episode whose return is at least this counts as solved."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Judge every episode."""
        return [self._judge(trajectory) for trajectory in group]

    def _judge(self, trajectory: Trajectory) -> Score:
        total = float(sum(segment.reward for segment in trajectory.segments))
        status: Literal["ok", "wrong"] = "ok" if total >= self.solved_at else "wrong"
        part = Score(value=total, status=status)
        value = total if self.value == "return" else 0.0
        return Score(value=value, status=status, explanation=f"return {total:.6g}", parts={"return": part})
