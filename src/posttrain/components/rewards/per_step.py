"""Another reward over the number of latent steps: a short chain that is right is rewarded with more.

Source: the flag ``punish_latent_length`` of CoLaR, Tan et al. 2025, arXiv:2505.16552 (off by default in its release).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.datasets.latents import steps_in
from posttrain.types import Group, Score, Trajectory


@frozen
class PerStep(Reward):
    """Divides a score by the latent steps of the rollout; one without any keeps its score."""

    of: Reward
    """The other reward."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The other reward."""
        return {"of": self.of}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the rollouts, and divide."""
        scores = await self.of.score(group, context)
        return [_divided(t, score) for t, score in zip(group, scores, strict=True)]


def _divided(trajectory: Trajectory, scored: Score) -> Score:
    steps = max(1, steps_in(trajectory))
    explanation = f"{scored.value:.4g} over {steps} latent steps"
    return replace(scored, value=scored.value / steps, spans=(), explanation=explanation, parts={"of": scored})
