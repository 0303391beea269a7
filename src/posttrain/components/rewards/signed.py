"""Another reward mapped to +1 for correct and -1 for incorrect rollouts, for methods that learn from failures.

An error remains an error. The score of the other reward is recorded as a part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Task


@frozen
class Signed(Reward):
    """Rewards correct rollouts by 1 and incorrect ones by -1."""

    of: Reward
    """The other reward; status ``ok`` is correct."""

    def prepare(self) -> None:
        """Prepare the other reward."""
        self.of.prepare()

    def check(self, tasks: Sequence[Task]) -> None:
        """Check the other reward."""
        self.of.check(tasks)

    @property
    def roles(self) -> frozenset[str]:
        """Those of the other reward."""
        return self.of.roles

    @property
    def runs(self) -> str:
        """What the other reward runs."""
        return self.of.runs

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """The files of the other reward."""
        return self.of.fingerprint

    @property
    def needs_answer(self) -> bool:
        """Whether the other reward does."""
        return self.of.needs_answer

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the rollouts, and map each status to a sign."""
        return [self._sign(score) for score in await self.of.score(group, context)]

    def _sign(self, scored: Score) -> Score:
        if scored.status == "error":
            return scored
        return replace(scored, value=1.0 if scored.status == "ok" else -1.0, parts={"of": scored})
