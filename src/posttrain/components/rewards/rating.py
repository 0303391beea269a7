"""The rating that a recorded completion came with: for the rollout `recorded`, whose completions were judged before.

Only such completions have one: held-out answers of the policy need another judge (`evaluation.verifier`).
"""

from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rollouts import DataRating
from posttrain.types import Group, Score, Trajectory


@frozen
class Rating(Reward):
    """Pays what the data says."""

    correct_at: float = 1.0
    """A rating of at least this counts as solved, for the record only."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read the rating of each completion."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        rated = trajectory.fact(DataRating)
        if rated is None:
            return failure(
                "this completion came without a rating: the rating reward is for the rollout 'recorded'; to judge what "
                "the policy writes, name another reward (for held-out answers evaluation.verifier)"
            )
        return Score(
            value=float(rated.rating),
            status="ok" if rated.rating >= self.correct_at else "wrong",
            explanation=f"rated {rated.rating:g} in the data",
        )
