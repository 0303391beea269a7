"""The share of the other rollouts of its group that a critic rates lower than a rollout.

Source: the self-critique of Kimi K2, arXiv:2507.20534, from technical notes: the answers of the policy are compared in
pairs by a critic of the same family, for tasks without a verifier; how wins are put together is not known, and a share
is taken here. The critic is trained on verified tasks in between (`methods/policy_gradient/kimi_k2`). Equal ratings are
half a win; a rollout without others has one half.

Differs: the critic is a model with a score, so that a comparison is one of scores; a critic that writes, with rubrics
in its prompt, is the reward `duels`.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

import numpy as np

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, counted, failure, read_by
from posttrain.signals import Signal
from posttrain.types import Group, Score


@frozen
class Wins(Reward):
    """Share of wins against the others of the group."""

    role: str = "critic"
    """The model that rates; it needs a reward head."""

    @property
    def compares(self) -> bool:
        """True."""
        return True

    @property
    def roles(self) -> frozenset[str]:
        """The critic."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """Its scores."""
        return frozenset({Signal("score", of=self.role)})

    @property
    def reads_sampled(self) -> frozenset[str]:
        """The critic."""
        return self.roles

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Rate all, and count wins."""
        sampler = context.sampler(self.role, self.kind)
        read = [read_by(sampler, trajectory) for trajectory in group]
        rated = np.array(await asyncio.gather(*(sampler.score(ids, vectors=vectors) for ids, vectors, _ in read)))
        found: list[Score] = []
        for i, own in enumerate(rated):
            if not np.isfinite(own):
                found.append(failure(f"the critic '{self.role}' rates it {own}"))
                continue
            others = np.delete(rated, i)
            others = others[np.isfinite(others)]
            share = float(((others < own) + 0.5 * (others == own)).mean()) if len(others) else 0.5
            status: Literal["ok", "wrong"] = "ok" if share > 0.5 else "wrong"
            parts = {"cut": counted(read[i][2])}
            explanation = f"rated {own:.4g}, above {share:.0%}"
            found.append(Score(value=share, status=status, explanation=explanation, parts=parts))
        return found
