"""Another reward plus a length reward, relative to the other rollouts of the group.

Source: the length reward of Kimi k1.5, arXiv:2501.12599, section 2.3.3: 0.5 - (length - shortest) / (longest -
shortest), with the shortest and longest of all rollouts of the group, correct or not. An incorrect rollout gets it only
where it is negative, so a short wrong answer is never rewarded and a long one is penalized. It is 0 where all lengths
are equal. It slows down training at first, so the paper enables it after some training without it.

Lengths are in trained tokens.

Differs: the paper has no number for the weight, nor for when it is enabled. A rollout that could not be scored counts
for the shortest and the longest length, and remains an error.
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
    """Adds a length reward to the reward of correctness."""

    correct: Reward
    """Scores the answers; status ``ok`` is correct."""
    weight: NonNegativeFloat = 1.0
    """Weight of the length reward, which is in [-0.5, 0.5]; at 0 it is only recorded."""
    begin: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Progress of the stage from which the length reward is added, in [0, 1)."""

    @property
    def follows_progress(self) -> bool:
        """The length reward is added from `begin` on."""
        return self.begin > 0

    @property
    def compares(self) -> bool:
        """True."""
        return True

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward of correctness."""
        return {"correct": self.correct}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the answers, and compare their lengths."""
        scored = await self.correct.score(group, context)
        lengths = [trajectory.num_trained for trajectory in group]
        counts = context.progress >= self.begin
        return [self._join(score, length, lengths, counts) for score, length in zip(scored, lengths, strict=True)]

    def _join(self, scored: Score, length: int, lengths: Sequence[int], counts: bool) -> Score:
        if scored.status == "error":
            return scored
        shortest, longest = min(lengths), max(lengths)
        brevity = 0.5 - (length - shortest) / (longest - shortest) if longest > shortest else 0.0
        brevity = brevity if scored.status == "ok" else min(0.0, brevity)
        weight = self.weight if counts else 0.0
        compared = f"{length} tokens among {shortest} to {longest}: {brevity:.4g}, weight {weight:g}"
        return replace(
            scored,
            value=scored.value + weight * brevity,
            explanation=f"{scored.explanation}; {compared}",
            parts={"correct": scored, "brevity": Score(value=brevity, status="ok")},
        )
