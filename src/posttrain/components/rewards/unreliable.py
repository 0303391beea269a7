"""Another reward with errors that are largest in the middle of its scale, as those of a reward model.

Source: Shen and Zhang 2024 (Policy Filtration), arXiv:2409.06957, section 3: a reward model orders very good and very
bad answers well, and those between them badly. With u the place of the true reward between `low` and `high`, the
standard deviation of the error is 4 u (1 - u) times `size`: 0 at both ends. `even` has errors of the same mean square
over a uniform u everywhere, for comparison, where the ends are no more reliable than the rest.

Errors are made only where scores are learned from (`RewardContext.learning`), and are a function of the task and the
answer: a reward model is deterministic. The true reward is the part ``true``, and ``reward/true`` its mean.
"""

import hashlib
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Final, Self

from pydantic import NonNegativeFloat, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory

MEAN_SQUARE: Final = 8.0 / 15.0
"""Of 4 u (1 - u) over u uniform in [0, 1]."""


@frozen
class Unreliable(Reward):
    """Adds an error to a reward, in training only."""

    of: Reward
    """The true reward."""
    size: NonNegativeFloat = 0.25
    """Standard deviation of the error in the middle of the scale, in units of reward."""
    low: float = 0.0
    """Lower end of the scale; lower rewards count as it."""
    high: float = 1.0
    """Upper end of the scale."""
    even: bool = False
    """Whether errors are as large everywhere."""

    @model_validator(mode="after")
    def check_scale(self) -> Self:
        """Refuse a scale without length."""
        if self.low >= self.high:
            raise PydanticCustomError("scale", "low must be below high")
        return self

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The true reward."""
        return {"of": self.of}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the group, and add the errors."""
        scores = await self.of.score(group, context)
        if not context.learning:
            return scores
        return [score if score.status == "error" else self._changed(t, score) for t, score in zip(group, scores,
                strict=True)]  # fmt: skip

    def std(self, value: float) -> float:
        """Standard deviation of the error of a true reward."""
        place = min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
        return float(self.size * (MEAN_SQUARE**0.5 if self.even else 4.0 * place * (1.0 - place)))

    def _changed(self, trajectory: Trajectory, score: Score) -> Score:
        digest = hashlib.blake2b(trajectory.task.key.encode(), digest_size=8)
        digest.update(trajectory.completion_ids.tobytes())
        normal = NormalDist().inv_cdf((int.from_bytes(digest.digest(), "little") + 0.5) / 2**64)
        return Score(
            value=score.value + self.std(score.value) * normal,
            status=score.status,
            answer=score.answer,
            confidence=score.confidence,
            explanation=score.explanation,
            parts={**score.parts, "true": Score(value=score.value, status=score.status)},
        )
