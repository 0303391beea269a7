"""Another reward's verdicts as +1 for what is right and -1 for what is not, for methods that learn from failures.

A judgement that failed stays an error. What the other reward gave is recorded as a part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score


@frozen
class Signed(Reward):
    """Pays 1 for a right attempt and takes 1 for a wrong one."""

    of: Reward
    """Judges the attempts: what it gives status ``ok`` is right."""

    def prepare(self) -> None:
        """Prepare the other reward."""
        self.of.prepare()

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

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Have the attempts judged, and keep only whether they are right."""
        return [self._sign(score) for score in await self.of.score(group, context)]

    def _sign(self, judged: Score) -> Score:
        if judged.status == "error":
            return judged
        return replace(judged, value=1.0 if judged.status == "ok" else -1.0, parts={"of": judged})
