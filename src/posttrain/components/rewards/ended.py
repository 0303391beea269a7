"""Another reward, replaced by a penalty where the completion has no end.

Source: the penalty for answers without an end token of Tulu 3, arXiv:2411.15124, and its release (open-instruct at
e6c3044a): the score is replaced by -10, also where the answer was right. It is not added to the score.

A completion without an end is one that was cut at the token limit. Its score does not depend on the other reward, so
that it is the penalty also where the other reward failed. The other reward sees the whole group.
"""

from collections.abc import Mapping, Sequence

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory


@frozen
class Ended(Reward):
    """Replaces the score of completions that were cut."""

    of: Reward
    """The other reward."""
    cut: float = -10.0
    """Score of a completion that was cut at the token limit."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The other reward."""
        return {"of": self.of}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the rollouts, and replace the scores of those without an end."""
        scores = await self.of.score(group, context)
        return [self._replaced(t, score) for t, score in zip(group, scores, strict=True)]

    def _replaced(self, trajectory: Trajectory, scored: Score) -> Score:
        if trajectory.stop_reason != "length":
            return scored
        explanation = f"was cut at the token limit: {self.cut:g} in place of {scored.value:.4g}"
        return Score(
            value=self.cut, status="wrong", answer=scored.answer, explanation=explanation, parts={"of": scored}
        )
