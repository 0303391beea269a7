"""Another reward, less a penalty that rises over the last tokens before a limit.

Source: soft overlong punishment of DAPO, Yu et al. 2025, arXiv:2503.14476, equation 13. With L the tokens of a
completion, added to its reward are

    0                               L <= limit - buffer
    (limit - buffer - L) / buffer   up to the limit, times `factor`
    -1                              beyond, times `factor`

A correct answer stays correct, whatever its length costs. Groups should then be dropped by correctness
(`filters/zero_variance`, ``by``), as in the release of DAPO.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory


@frozen
class Overlong(Reward):
    """Lowers the score of completions that come near the token limit."""

    of: Reward
    """The other reward."""
    limit: PositiveInt = 64
    """Tokens from which the whole penalty is due; those that the model wrote are counted."""
    buffer: Annotated[int, Field(ge=1, le=100_000_000)] = 13
    """Tokens before the limit over which the penalty rises."""
    factor: PositiveFloat = 1.0
    """The whole penalty, in units of reward."""

    @model_validator(mode="after")
    def _check_buffer(self) -> Self:
        if self.buffer > self.limit:
            raise ValueError(
                f"buffer={self.buffer} is more than limit={self.limit}, so that every completion would be penalized; "
                "give a smaller buffer"
            )
        return self

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The other reward."""
        return {"of": self.of}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the rollouts, and take the penalty off."""
        scores = await self.of.score(group, context)
        return [self._lowered(t, score) for t, score in zip(group, scores, strict=True)]

    def _lowered(self, trajectory: Trajectory, scored: Score) -> Score:
        over = min(trajectory.num_trained, self.limit) - (self.limit - self.buffer)
        if scored.status == "error" or over <= 0:
            return replace(scored, parts={"of": scored})
        penalty = self.factor * over / self.buffer
        return replace(
            scored,
            value=scored.value - penalty,
            explanation=f"{scored.explanation}; {over} of the last {self.buffer} tokens: {-penalty:.4g}",
            parts={"of": scored},
        )
