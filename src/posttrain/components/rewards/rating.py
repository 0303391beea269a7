"""The rating of a recorded completion, for the rollout `recorded`.

Only recorded completions have a rating. Held-out answers of the policy need another reward (`evaluation.verifier`).
"""

from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rollouts import DataRating
from posttrain.types import Group, Score, Trajectory


@frozen
class Rating(Reward):
    """Takes the rating of the data as the score."""

    correct_at: float = 1.0
    """Smallest rating that counts as correct, for the record only."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read the rating of each completion."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        rated = trajectory.fact(DataRating)
        if rated is None:
            return failure(
                "this completion has no rating: the rating reward is for the rollout 'recorded'; to score completions "
                "of the policy, name another reward (for held-out answers evaluation.verifier)"
            )
        return Score(
            value=float(rated.rating),
            status="ok" if rated.rating >= self.correct_at else "wrong",
            explanation=f"rated {rated.rating:g} in the data",
        )
