"""Another reward for each role that writes: solutions are judged by one rule, verifications of them by another.

An attempt is judged by the reward of the role that learns from it; where several roles wrote one, by that of the first
of them to write. Each reward has a memory of its own.
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
    """Chooses the reward by who wrote."""

    parts: Annotated[Mapping[str, Reward], Field(min_length=1)]
    """By role: ``policy``, ``verifier``, ..."""

    def prepare(self) -> None:
        """Prepare every part."""
        for part in self.parts.values():
            part.prepare()

    @property
    def roles(self) -> frozenset[str]:
        """Those that the parts ask."""
        return frozenset().union(*(part.roles for part in self.parts.values()))

    @property
    def runs(self) -> str:
        """What the policy's judge runs: the audit tries the policy's answers."""
        return self.parts["policy"].runs if "policy" in self.parts else ""

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """The files of every part."""
        return {file: digest for part in self.parts.values() for file, digest in part.fingerprint.items()}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Let each part judge the attempts of its role, as a group."""
        writers = [_writer(trajectory) for trajectory in group]
        scores: dict[int, Score] = {}
        for role in dict.fromkeys(writers):
            if role not in self.parts:
                raise UserError(f"the by_role reward has no part for the role '{role}'; {nearest(role, self.parts)}")
            places = [i for i, writer in enumerate(writers) if writer == role]
            own = replace(group, trajectories=tuple(group.trajectories[i] for i in places))
            memory = replace(context, state=context.state.setdefault(role, {}))
            scores |= dict(zip(places, await self.parts[role].score(own, memory), strict=True))
        return [scores[i] for i in range(len(writers))]


def _writer(trajectory: Trajectory) -> str:
    """The first role that learns from an attempt."""
    return next((s.learner for s in trajectory.segments if s.trained), "policy")
