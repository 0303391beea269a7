"""A reward raised by another one where it is low, against a verifier that misses correct answers.

Source: the calibration of reward models in "The Climb Carves Wisdom Deeper Than the Summit": a score s of the reward
model below 0.5 becomes min(s + 0.1 RPR, 1), with the reasoning pattern reward RPR (`phrases`); another one is not
changed. With ``weight: 1`` and a verifier of 0 and 1 it is the release's replacement of a 0 by the RPR.

The bound has a jump that the release does not close: 0.49 with an RPR of 1 becomes 0.59 and overtakes 0.5. ``cap: 0.5``
closes it.

The value of `of` must be on a scale of 0 to 1. Whether a rollout is correct is what `of` returns. A gate for the tags
before it is `gated`, which gives 0 to a rollout without them, as the release does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.types import Group, Score


@frozen
class Raised(Reward):
    """Adds a share of one reward to another where that is below a bound."""

    of: Reward
    """The reward that is raised; it decides what is correct."""
    by: Reward
    """What raises it."""
    below: float = 0.5
    """Values of `of` from here on are not changed."""
    weight: NonNegativeFloat = 0.1
    """alpha: the share of `by` that is added."""
    cap: float = 1.0
    """Largest value of a rollout that is raised."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """Both rewards."""
        return {"of": self.of, "by": self.by}

    @property
    def runs(self) -> str:
        """What the reward that is raised runs."""
        return self.of.runs or self.by.runs

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the group by both, each with a state of its own."""
        own = {name: replace(context, state=context.state.setdefault(name, {})) for name in ("of", "by")}
        scores = await self.of.score(group, own["of"])
        raising = await self.by.score(group, own["by"])
        return [self._raised(score, by) for score, by in zip(scores, raising, strict=True)]

    def _raised(self, score: Score, by: Score) -> Score:
        parts = {"of": score, "by": by}
        if score.status == "error":
            return replace(score, parts=parts)
        if by.status == "error":
            return failure(f"what raises it failed: {by.explanation}", answer=score.answer, parts=parts)
        if score.value >= self.below:
            return replace(score, parts=parts)
        value = max(min(score.value + self.weight * by.value, self.cap), score.value)
        return replace(score, value=value, parts=parts, explanation=f"{score.explanation}; raised to {value:g}")
