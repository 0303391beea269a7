"""Another reward, less a penalty for completions that were cut at their budget of tokens.

Source: the budget control of Kimi K2, arXiv:2507.20534, from technical notes. One that ends exactly at the budget has
no penalty. The size of the penalty is not known. It is subtracted before the mean of the group is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory


@frozen
class OverBudget(Reward):
    """Subtracts a penalty where a completion was cut."""

    of: Reward
    """The other reward."""
    penalty: NonNegativeFloat = 1.0
    """What a completion that was cut loses, in units of reward."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The other reward."""
        return {"of": self.of}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the rollouts, and subtract."""
        scores = await self.of.score(group, context)
        return [self._less(t, score) for t, score in zip(group, scores, strict=True)]

    def _less(self, trajectory: Trajectory, scored: Score) -> Score:
        if trajectory.stop_reason != "length" or scored.status == "error":
            return scored
        why = f"was cut at its budget: {scored.value:.4g} less {self.penalty:g}"
        return replace(scored, value=scored.value - self.penalty, explanation=why, parts={"of": scored})
