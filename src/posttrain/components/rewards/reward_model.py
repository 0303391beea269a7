"""What a reward model says of a completion: the number that a model with a reward head gives after its last token.

Source: Dong et al. 2024, arXiv:2405.07863, sections 2.1 and 4.2 (the length penalty).

The model reads the tokens as they were sampled, so it must share the policy's vocabulary: a copy of it does.
"""

import asyncio
import math
from collections.abc import Sequence

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.signals import Signal
from posttrain.types import Group, Score, Trajectory


@frozen
class RewardModel(Reward):
    """Judges by a trained model of the recipe."""

    role: str = "reward"
    """The model that judges; it needs ``head: reward``."""
    length_penalty: NonNegativeFloat = 0.0
    """Taken off for each character of the completion, in units of reward."""
    correct_at: float = 0.0
    """A reward of at least this counts as solved, for the record only."""

    @property
    def roles(self) -> frozenset[str]:
        """The model that judges."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """The model's scores."""
        return frozenset({Signal("score", of=self.role)})

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Judge every trajectory by its own tokens."""
        sampler = context.sampler(self.role, self.kind)
        values = await asyncio.gather(*(sampler.score(t.token_ids, vectors=t.vectors) for t in group))
        return [self._score(t, value) for t, value in zip(group, values, strict=True)]

    def _score(self, trajectory: Trajectory, said: float) -> Score:
        """The judgement, less the penalty."""
        if not math.isfinite(said):
            return failure(f"the role '{self.role}' gives {said}")
        value = said - self.length_penalty * len(trajectory.completion)
        explanation = f"the role '{self.role}' gives {said:.4g}"
        if self.length_penalty:
            explanation += f"; {said - value:.4g} taken off for {len(trajectory.completion)} characters"
        return Score(value=value, status="ok" if value >= self.correct_at else "wrong", explanation=explanation)
