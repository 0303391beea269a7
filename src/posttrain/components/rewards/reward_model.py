"""The score of a reward model: the output of its reward head after the last token of a completion.

Source: Dong et al. 2024, arXiv:2405.07863, sections 2.1 and 4.2 (the length penalty).

The model reads the sampled tokens, so it must share the policy's vocabulary, as a copy of the policy does. With
`own_tokens` it reads prompt and completion in its own tokenizer, whatever the policy's is, and the score is that of its
end token.
"""

import asyncio
import math
from collections.abc import Sequence

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.engines import Sampler
from posttrain.errors import UserError
from posttrain.signals import Signal
from posttrain.types import Group, IntArray, Score, Trajectory


@frozen
class RewardModel(Reward):
    """Scores by a reward model of the recipe."""

    role: str = "reward"
    """Role of the reward model; it needs ``head: reward``."""
    own_tokens: bool = False
    """Whether prompt and completion are encoded by the reward model's own tokenizer, with its end token."""
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
        if self.own_tokens:
            values = await asyncio.gather(*(sampler.score(_encoded(t, sampler)) for t in group))
        else:
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


def _encoded(trajectory: Trajectory, sampler: Sampler) -> IntArray:
    """Prompt and completion in a model's own tokens. Raises `UserError` for rollouts of several turns, and images."""
    if trajectory.task.images or sum(segment.actor != "prompt" for segment in trajectory.segments) != 1:
        raise UserError(
            "reward.own_tokens encodes one prompt and one completion as text, and this rollout has images or several "
            "turns; take a reward model with the policy's vocabulary, and leave own_tokens out"
        )
    prompt = trajectory.task.prompt
    return np.concatenate([sampler.encode(prompt), sampler.encode_completion(prompt, trajectory.completion)])
