"""Another reward, with something on top for attempts that are shorter than the others of their group.

Source: the length reward of Kimi k1.5, arXiv:2501.12599, section 2.3.3: 0.5 - (length - shortest) / (longest -
shortest), with the shortest and longest of all attempts of the group, right and wrong; a wrong attempt gets this only
where it is negative. So being short never pays for a wrong answer, and being long costs. Where all are equally long it
is 0. It slows training down at first, so that it is switched on after some training without it.

Lengths are in tokens that the policy learns from.

Differs: the paper does not say the weight, nor when it is switched on. An attempt whose judgement failed counts for the
shortest and the longest, and stays an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score


@frozen
class Brevity(Reward):
    """Correctness plus a reward for being short among the attempts at one task."""

    correct: Reward
    """Judges the answers: what it gives status ``ok`` is right."""
    weight: NonNegativeFloat = 1.0
    """Of the length reward, which is between -0.5 and 0.5; at 0 it is only recorded."""
    begin: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of the stage after which it counts, in [0, 1); before that only the answers do."""

    def prepare(self) -> None:
        """Prepare the judge of the answers."""
        self.correct.prepare()

    @property
    def roles(self) -> frozenset[str]:
        """Those of the judge of the answers."""
        return self.correct.roles

    @property
    def runs(self) -> str:
        """What the judge of the answers runs."""
        return self.correct.runs

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """The files of the judge of the answers."""
        return self.correct.fingerprint

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Have the answers judged, and compare their lengths."""
        judged = await self.correct.score(group, context)
        lengths = [trajectory.num_trained for trajectory in group]
        counts = context.progress >= self.begin
        return [self._join(score, length, lengths, counts) for score, length in zip(judged, lengths, strict=True)]

    def _join(self, judged: Score, length: int, lengths: Sequence[int], counts: bool) -> Score:
        if judged.status == "error":
            return judged
        shortest, longest = min(lengths), max(lengths)
        brevity = 0.5 - (length - shortest) / (longest - shortest) if longest > shortest else 0.0
        brevity = brevity if judged.status == "ok" else min(0.0, brevity)
        weight = self.weight if counts else 0.0
        compared = f"{length} tokens among {shortest} to {longest}: {brevity:.4g}, weight {weight:g}"
        return replace(
            judged,
            value=judged.value + weight * brevity,
            explanation=f"{judged.explanation}; {compared}",
            parts={"correct": judged, "brevity": Score(value=brevity, status="ok")},
        )
