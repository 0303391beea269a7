"""The score of a reward model: the output of its reward head after the last token of a completion.

Source: Dong et al. 2024, arXiv:2405.07863, sections 2.1 and 4.2 (the length penalty).

The model reads the sampled tokens, so it must share the policy's vocabulary, as a copy of the policy does.
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
    """Scores by a reward model of the recipe."""

    role: str = "reward"
    """Role of the reward model; it needs ``head: reward``."""
    length_penalty: NonNegativeFloat = 0.0
    """Penalty per character of the completion, in units of reward."""
    correct_at: float = 0.0
    """Smallest reward that counts as correct, for the record only."""

    @property
    def roles(self) -> frozenset[str]:
        """The reward model."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """The model's scores."""
        return frozenset({Signal("score", of=self.role)})

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every trajectory by its own tokens."""
        sampler = context.sampler(self.role, self.kind)
        values = await asyncio.gather(*(sampler.score(t.token_ids, vectors=t.vectors) for t in group))
        return [self._score(t, value) for t, value in zip(group, values, strict=True)]

    def _score(self, trajectory: Trajectory, output: float) -> Score:
        """The model's output less the length penalty."""
        if not math.isfinite(output):
            return failure(f"the role '{self.role}' gives {output}")
        value = output - self.length_penalty * len(trajectory.completion)
        explanation = f"the role '{self.role}' gives {output:.4g}"
        if self.length_penalty:
            explanation += f"; {output - value:.4g} taken off for {len(trajectory.completion)} characters"
        return Score(value=value, status="ok" if value >= self.correct_at else "wrong", explanation=explanation)
