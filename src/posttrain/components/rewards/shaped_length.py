"""Correctness by length: the reward of a correct answer falls with its length, that of an incorrect one rises.

Source: arXiv:2507.08267 and its release (kaggle-aimo2-fast-math-r1 at 09bf8ff6, grpo_rewards.py). With p the length
over the limit, held at 1,

    right    last + (first - last) / 2 * (1 + cos(pi p)),    from 1.0 at length 0 to 0.1 at the limit
    wrong    the same                                        from -1.0 at length 0 to -0.1 at the limit

With ``shape: linear`` it is last + (first - last) (1 - p). Without the hold the cosine would turn round beyond the
limit. Lengths are in characters there. A correct answer gets
more than an incorrect one at all lengths by this reward alone, but not in a sum with other rewards of length.

Differs: there, an answer counts as right where the reference answer cannot be parsed; here such a task has the error
of the reward of correctness, and is not learned from.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory

Line = tuple[float, float]


@frozen
class ShapedLength(Reward):
    """Scores right and wrong answers by their length."""

    correct: Reward
    """Scores the answers; status ``ok`` is right."""
    right: Line = (1.0, 0.1)
    """Reward of a right answer of length 0, and from the limit on."""
    wrong: Line = (-1.0, -0.1)
    """The same of a wrong answer."""
    limit: PositiveInt = 30_000
    """Length from which the reward stays as it is."""
    shape: Literal["cosine", "linear"] = "cosine"
    """How it falls or rises between them."""
    unit: Literal["characters", "tokens"] = "characters"
    """What lengths are counted in; tokens are the trained ones."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward of correctness."""
        return {"correct": self.correct}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the answers, and weigh them by length."""
        scores = await self.correct.score(group, context)
        return [self._weighed(t, score) for t, score in zip(group, scores, strict=True)]

    def _weighed(self, trajectory: Trajectory, scored: Score) -> Score:
        if scored.status == "error":
            return scored
        length = len(trajectory.completion) if self.unit == "characters" else trajectory.num_trained
        first, last = self.right if scored.status == "ok" else self.wrong
        share = min(1.0, length / self.limit)
        left = 1 - share if self.shape == "linear" else (1 + math.cos(math.pi * share)) / 2
        value = last + (first - last) * left
        return replace(
            scored,
            value=value,
            explanation=f"{scored.explanation}; {length} of {self.limit} {self.unit}: {value:.4g}",
            parts={"correct": scored},
        )
