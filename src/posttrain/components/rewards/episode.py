"""The return of an episode: the sum of the rewards of its turns.

In training, each turn's reward is credited to the turn, so the score of the episode adds 0. An evaluation, which has no
credit assignment, takes the return as the score.
"""

from collections.abc import Sequence
from typing import Literal

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory


@frozen
class Episode(Reward):
    """Scores episodes by their return."""

    value: Literal["nothing", "return"] = "nothing"
    """Value of the score: ``nothing`` is 0, beside the rewards of turns (training); ``return`` their sum
    (evaluation)."""
    solved_at: float = 0.0
    """Smallest return of a solved episode."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every episode."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        total = float(sum(segment.reward for segment in trajectory.segments))
        status: Literal["ok", "wrong"] = "ok" if total >= self.solved_at else "wrong"
        part = Score(value=total, status=status)
        value = total if self.value == "return" else 0.0
        return Score(value=value, status=status, explanation=f"return {total:.6g}", parts={"return": part})
