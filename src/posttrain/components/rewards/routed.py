"""A reward per kind of task: each row is scored by the verifier that its own field names.

Source: the verifiers of Tulu 3 (arXiv:2411.15124), chosen by the name of a row's data set; the rewards by type of task
of RedOne 2.0 (arXiv:2511.07070).

    reward={kind: routed, field: verifier, parts: {sums: match, puzzles: countdown}}

Each part has a state of its own. A task whose field has another value is a mistake, found before anything is sampled;
`other` scores those where it is given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen, nearest
from posttrain.components.rewards import Reward, RewardContext
from posttrain.errors import TaskFault, UserError
from posttrain.types import Group, Score, Task


@frozen
class Routed(Reward):
    """Chooses the reward by a field of the task."""

    parts: Annotated[Mapping[str, Reward], Field(min_length=1)]
    """By value of the field."""
    field: str = "domain"
    """``domain``, or the name of a field of the tasks (a column of the data)."""
    other: Reward | None = None
    """Scores tasks of any other value; None has none of them."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The parts, then `other`."""
        return {**self.parts, **({"": self.other} if self.other is not None else {})}

    @property
    def together(self) -> str | None:
        """That of the parts. Raises `UserError` for another field than its own: parts would see some rollouts only."""
        found = super().together
        if found not in (None, self.field):
            raise UserError(
                f"a part scores the rollouts of all tasks with the same '{found}' together, which may have different "
                f"parts; set reward.field={found}, or leave the part's field out"
            )
        return found

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have a part; each part checks its own tasks."""
        own: dict[str, list[Task]] = {}
        for task in tasks:
            own.setdefault(self._name(task), []).append(task)
        for name, some in own.items():
            self._part(name).check(some)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the rollouts of each kind of task by its part, as a group."""
        names = [self._name(trajectory.task) for trajectory in group]
        scores: dict[int, Score] = {}
        for name in dict.fromkeys(names):
            places = [i for i, other in enumerate(names) if other == name]
            some = replace(group, trajectories=tuple(group.trajectories[i] for i in places))
            own = replace(context, state=context.state.setdefault(name, {}))
            scores |= dict(zip(places, await self._part(name).score(some, own), strict=True))
        return [scores[i] for i in range(len(names))]

    def _part(self, name: str) -> Reward:
        """The reward of a name that `_name` gave."""
        return self.wrapped[name]

    def _name(self, task: Task) -> str:
        """The name of a task's part. Raises `UserError` for a task that has none."""
        if self.field != "domain" and self.field not in task.fields and self.other is None:
            raise TaskFault(
                task.key,
                f"reward.field names '{self.field}', but task {task.key} has no such field; "
                f"{nearest(self.field, ('domain', *task.fields))}",
            )
        value = task.domain if self.field == "domain" else str(task.fields.get(self.field, ""))
        if value in self.parts:
            return value
        if self.other is None:
            raise TaskFault(
                task.key,
                f"task {task.key} has the {self.field} '{value}', and the routed reward has no part for it; "
                f"{nearest(value, self.parts)}, or give reward.other for all others",
            )
        return ""
