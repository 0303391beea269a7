"""Another reward mapped to +1 for correct and -1 for incorrect rollouts, for methods that learn from failures.

An error remains an error. The score of the other reward is recorded as a part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score


@frozen
class Signed(Reward):
    """Rewards correct rollouts by 1 and incorrect ones by -1."""

    of: Reward
    """The other reward; status ``ok`` is correct."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The other reward."""
        return {"of": self.of}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the rollouts, and map each status to a sign."""
        return [self._sign(score) for score in await self.of.score(group, context)]

    def _sign(self, scored: Score) -> Score:
        if scored.status == "error":
            return scored
        return replace(scored, value=1.0 if scored.status == "ok" else -1.0, parts={"of": scored})
