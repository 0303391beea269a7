"""The score of a reward model: the output of its reward head after the last token of a completion.

Source: Dong et al. 2024, arXiv:2405.07863, sections 2.1 and 4.2 (the length penalty).

The model reads the sampled tokens, so it must share the policy's vocabulary, as a copy of the policy does. With
`own_tokens` it reads prompt and completion in its own tokenizer, whatever the policy's is, and the score is that of its
end token, or of the token that the model's `read_at` names. A rollout that is longer than the model's context is read
up to where the context ends; ``reward/cut`` is the share of such rollouts.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Literal

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, counted, failure, read_by
from posttrain.signals import Signal
from posttrain.types import Group, Score, Trajectory


@frozen
class RewardModel(Reward):
    """Scores by a reward model of the recipe."""

    role: str = "reward"
    """Role of the reward model; it needs ``head: reward``."""
    own_tokens: bool = False
    """Whether prompt and completion are encoded by the reward model's own tokenizer, with its end token or that of
    `read_at`."""
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

    @property
    def reads_sampled(self) -> frozenset[str]:
        """The reward model, unless it has tokens of its own."""
        return frozenset() if self.own_tokens else self.roles

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every trajectory by its own tokens."""
        sampler = context.sampler(self.role, self.kind)
        read = [read_by(sampler, trajectory, own_tokens=self.own_tokens) for trajectory in group]
        values = await asyncio.gather(*(sampler.score(ids, vectors=vectors) for ids, vectors, _ in read))
        return [self._score(t, value, cut) for t, value, (_, _, cut) in zip(group, values, read, strict=True)]

    def _score(self, trajectory: Trajectory, output: float, cut: bool) -> Score:
        """The model's output less the length penalty."""
        if not math.isfinite(output):
            return failure(f"the role '{self.role}' gives {output}")
        value = output - self.length_penalty * len(trajectory.completion)
        explanation = f"the role '{self.role}' gives {output:.4g}"
        if self.length_penalty:
            explanation += f"; {output - value:.4g} taken off for {len(trajectory.completion)} characters"
        status: Literal["ok", "wrong"] = "ok" if value >= self.correct_at else "wrong"
        return Score(value=value, status=status, explanation=explanation, parts={"cut": counted(cut)})
