"""A reward per role, such as one for solutions and one for verifications of them.

A rollout is scored by the reward of the role that is trained on it; with several roles, by that of the first one in the
rollout. Each reward has a state of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen, nearest
from posttrain.components.rewards import Reward, RewardContext
from posttrain.errors import UserError
from posttrain.types import Group, Score, Trajectory


@frozen
class ByRole(Reward):
    """Chooses the reward by the trained role."""

    parts: Annotated[Mapping[str, Reward], Field(min_length=1)]
    """By role: ``policy``, ``verifier``, ..."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The parts."""
        return self.parts

    @property
    def needs_answer(self) -> bool:
        """False: a part scores rollouts of its role only, which may have no reference answer."""
        return False

    @property
    def runs(self) -> str:
        """What the policy's reward runs: the audit probes answers of the policy."""
        return self.parts["policy"].runs if "policy" in self.parts else ""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the rollouts of each role by its part, as a group."""
        trained = [_trained_role(trajectory) for trajectory in group]
        scores: dict[int, Score] = {}
        for role in dict.fromkeys(trained):
            if role not in self.parts:
                raise UserError(f"the by_role reward has no part for the role '{role}'; {nearest(role, self.parts)}")
            places = [i for i, other in enumerate(trained) if other == role]
            own = replace(group, trajectories=tuple(group.trajectories[i] for i in places))
            part_context = replace(context, state=context.state.setdefault(role, {}))
            scores |= dict(zip(places, await self.parts[role].score(own, part_context), strict=True))
        return [scores[i] for i in range(len(trained))]


def _trained_role(trajectory: Trajectory) -> str:
    """The first role that is trained on a rollout."""
    return next((s.learner for s in trajectory.segments if s.trained), "policy")
