"""Rollouts of the next steps, sampled before the steps that come first are learned from.

    step s:   begin to sample step s + k   |  learn from step s  |  wait for the rollouts of s + k

Step s + k is sampled with the weights of step s - 1. Where samplers are processes of their own they work while the
learner does. What waits is in the checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from posttrain.components.filters import Dropped
from posttrain.errors import UserError
from posttrain.stages.rl.waiting import pack_groups, unpack_groups
from posttrain.types import Group, Task

AHEAD = "ahead"
"""Key of what waits in the memory of a stage."""


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The scored rollouts of a step, before anything is learned from them."""

    groups: list[Group] = field(default_factory=list)
    """All."""
    kept: list[Group] = field(default_factory=list)
    """What is learned from."""
    dropped: list[Dropped] = field(default_factory=list)
    metrics: Mapping[str, float] = field(default_factory=dict)
    sampled: int = 0
    """Tokens that were sampled."""

    def unused(self) -> "Collected":
        """The same with nothing to learn from, in a step that learns from demonstrations alone."""
        reason = "the step learns from demonstrations alone"
        return Collected(dropped=[Dropped(group=group, reason=reason) for group in self.groups], sampled=self.sampled)

    def packed(self, tasks: Mapping[str, Task]) -> dict[str, Any]:
        """As JSON. Raises `UserError` for rollouts of a task that is not among the stage's, which only it has."""
        for group in [*self.groups, *self.kept, *(item.group for item in self.dropped)]:
            for trajectory in group:
                if tasks.get(trajectory.task.key) != trajectory.task:
                    raise UserError(
                        f"this schedule keeps rollouts in the checkpoint, and the task '{trajectory.task.key}' was "
                        "made while sampling: it is not among the tasks of the stage. Leave the schedule out"
                    )
        return {
            "groups": pack_groups(self.groups),
            "kept": pack_groups(self.kept),
            "dropped": [[pack_groups([item.group]), item.reason] for item in self.dropped],
            "metrics": dict(self.metrics),
            "sampled": self.sampled,
        }

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any], tasks: Sequence[Task]) -> "Collected":
        """What `packed` was made from."""
        return cls(
            groups=unpack_groups(packed["groups"], tasks, age=None),
            kept=unpack_groups(packed["kept"], tasks, age=None),
            dropped=[
                Dropped(group=unpack_groups(group, tasks, age=None)[0], reason=reason)
                for group, reason in packed["dropped"]
            ],
            metrics=packed["metrics"],
            sampled=packed["sampled"],
        )


class Arrivals(Protocol):
    """Where the rollouts of steps come from, in the order of the steps."""

    always: bool
    """Whether also steps are sampled that learn from demonstrations alone."""

    def take(self, step: int) -> Collected:
        """The rollouts of a step."""
        ...

    def settle(self) -> None:
        """Called when the step has been learned from; keeps all that goes on in the memory of the stage."""
        ...

    def close(self) -> None:
        """End what is in progress."""
        ...


Begin = Callable[[int], Callable[[], Collected]]


class Ahead:
    """The steps that were sampled ahead, in their order."""

    def __init__(self, memory: dict[str, Any], tasks: Sequence[Task], steps: int, total: int, begin: Begin) -> None:
        """`steps` is k; `total` are those of the stage. What waits in `memory` is taken over.

        `begin` starts to sample a step, and returns what waits for it.
        """
        self._memory, self._steps, self._total, self._begin = memory, steps, total, begin
        self.always = steps > 0
        self._tasks = {task.key: task for task in tasks}
        self._waiting = [(Collected.unpacked(item, tasks), item) for item in memory.get(AHEAD, ())]
        self._coming: list[Callable[[], Collected]] = []

    def due(self, step: int) -> range:
        """The steps to begin to sample before step `step` is learned from, with the weights as they are."""
        return range(step + len(self._waiting), min(step + self._steps, self._total - 1) + 1)

    def take(self, step: int) -> Collected:
        """The rollouts of a step."""
        for number in self.due(step):
            coming = self._begin(number)
            if 0 < number - step == self._steps:
                self._coming.append(coming)
            else:
                self._keep(coming())
        return self._waiting.pop(0)[0]

    def settle(self) -> None:
        """Wait for what is being sampled, and keep all that waits in the memory."""
        coming, self._coming = self._coming, []
        for wait in coming:
            self._keep(wait())
        if self._steps:
            self._memory[AHEAD] = [packed for _, packed in self._waiting]

    def close(self) -> None:
        """Nothing goes on between steps."""

    def _keep(self, collected: Collected) -> None:
        self._waiting.append((collected, collected.packed(self._tasks) if self._steps else {}))
