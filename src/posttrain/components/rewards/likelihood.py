"""The log-probability of a completion under a model of another role: a judge that writes nothing.

Small instructed models cannot compare two texts by a letter, and often find the better one the likelier one. It is the
mean over the tokens of the completion, its end token included, or their sum; what a model finds likely is fluent, not
true. No source: the score of a language model as a verifier is common practice.
"""

import asyncio
from collections.abc import Sequence

import numpy as np

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.signals import Signal, logp_of
from posttrain.types import Group, Score, Trajectory


@frozen
class Likelihood(Reward):
    """Scores by a model's log-probabilities."""

    role: str = "judge"
    """Role of the language model; it reads the sampled tokens, so it shares the policy's vocabulary."""
    mean: bool = True
    """Mean over tokens, in nats; their sum, which prefers short completions, without it."""
    correct_at: float = -1.0
    """Smallest value that counts as correct, for the record only."""

    @property
    def roles(self) -> frozenset[str]:
        """The model."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """Log-probabilities of the completion."""
        return frozenset({logp_of(self.role)})

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read every completion once."""
        sampler = context.sampler(self.role, self.kind)
        found = await asyncio.gather(*(sampler.logp(t.token_ids, vectors=t.vectors) for t in group))
        return [self._score(t, logp) for t, logp in zip(group, found, strict=True)]

    def _score(self, trajectory: Trajectory, logp: np.ndarray) -> Score:
        own = [place - 1 for place in trajectory.trained_positions.tolist() if place > 0]
        if not own:
            return failure("the completion has no token that follows another one")
        logp_T = np.asarray(logp, np.float64)[own]
        value = float(logp_T.mean() if self.mean else logp_T.sum())
        if not np.isfinite(value):
            return failure(f"the role '{self.role}' gives a log-probability of {value}")
        explanation = f"the role '{self.role}' gives {value:.4g} nats {'a token' if self.mean else 'in all'}"
        return Score(value=value, status="ok" if value >= self.correct_at else "wrong", explanation=explanation)
