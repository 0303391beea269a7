"""Tasks that a reward scores together are drawn, sampled and scored as one.

    reward.together = "query":   curriculum chooses a query -> rollouts of each of its tasks -> one call of the reward

The curriculum has the first task of each value in its pool, and observes the rollouts of all of them as that task's.
The reward receives one group with the rollouts of all tasks of the value, in the order of the tasks; advantages and
filters have the groups of the tasks again. Since a choice is one task for the timetable, lagged, streaming and
distributed schedules need no rule of their own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from posttrain.components.rewards import Reward, joined
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.datasets.together import lists, value_of
from posttrain.engines import Sampler
from posttrain.errors import UserError
from posttrain.types import Group, Task


@dataclass(frozen=True, kw_only=True)
class Lists:
    """The tasks of a stage by the value of a field."""

    field: str
    members: Mapping[str, tuple[Task, ...]]
    """All tasks of a value, by the key of the first."""

    @property
    def heads(self) -> list[Task]:
        """The first task of each value."""
        return [own[0] for own in self.members.values()]

    def seen(self, groups: Sequence[Group]) -> list[Group]:
        """The groups as the curriculum observes them: one for each value, of its first task."""
        heads = {value_of(own[0], self.field): own[0] for own in self.members.values()}
        found: dict[str, list[Any]] = {}
        for group in groups:
            for trajectory in group:
                head = heads[value_of(trajectory.task, self.field)]
                found.setdefault(head.key, []).append(replace(trajectory, task=head))
        return [Group(key=key, trajectories=tuple(own)) for key, own in found.items()]

    def note(self, prompts: int) -> str:
        """A line for the dry run."""
        sizes = [len(own) for own in self.members.values()]
        each = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
        return (
            f"scored together: the rollouts of all tasks with the same '{self.field}', by one call of the reward; "
            f"values: {len(sizes):,}, with {each} of {sum(sizes):,} tasks each; a step draws {prompts} of them, with "
            "all their tasks"
        )


def lists_of(reward: Reward, tasks: Sequence[Task], rollout: Rollout, *, refilled: bool) -> Lists | None:
    """The tasks that the reward scores together; None where it scores each by itself.

    Raises `UserError` for a task without the field, and for settings with which they cannot be scored together.
    """
    field = reward.together
    if field is None:
        return None
    so = f"the reward '{reward.kind}' scores the rollouts of all tasks with the same '{field}' together"
    if type(rollout).collect_scored is not Rollout.collect_scored:
        raise UserError(
            f"{so}, when all of them are there, and the rollout '{rollout.kind}' needs scores while it samples; take a "
            "rollout that does not, such as independent"
        )
    if refilled:
        raise UserError(f"{so}, and refill counts the groups of single tasks; leave refill out")
    found = lists(tasks, field, f"the reward '{reward.kind}'")
    return Lists(field=field, members={own[0].key: own for own in found})


def pool_of(own: Lists | None, tasks: Sequence[Task]) -> Sequence[Task]:
    """What the curriculum chooses from."""
    return tasks if own is None else own.heads


@dataclass(frozen=True, kw_only=True)
class Joined(Rollout):
    """Samples all tasks of a value, and scores them by one call."""

    of: Rollout
    lists: Lists

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """The groups of each task, in the order of the tasks."""

        async def one(place: int, member: Task) -> list[Group]:
            bound = {role: sampler.bind("together", place) for role, sampler in samplers.items()}
            return await self.of.collect(member, bound)

        found = await asyncio.gather(*(one(*own) for own in enumerate(self.lists.members[task.key])))
        groups = [group for own in found for group in own]
        whole = iter(await scorer(joined(groups, task.key)))
        return [replace(group, trajectories=tuple(next(whole) for _ in group)) for group in groups]
