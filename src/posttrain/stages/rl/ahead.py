"""Rollouts of the next steps, sampled before the steps that come first are learned from.

    step s:   begin to sample step s + k   |  wait for the rollouts of step s  |  learn from them

Step s + k is sampled with the weights of step s - 1. Where samplers are processes of their own they work while the
learner does, and on up to k + 1 steps at a time, each with its weights: short rollouts of a step begin beside the long
ones of the step before. Where one step's rollouts decide about the next one's, a step is waited for before the next
one begins. A checkpoint waits for all that is being sampled, and has it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
        """Called when the step has been learned from."""
        ...

    def store(self) -> None:
        """Called before a checkpoint; keeps all that goes on in the memory of the stage."""
        ...

    def close(self) -> None:
        """End what is in progress."""
        ...


Begin = Callable[[int], Callable[[], Collected]]


class Ahead:
    """The steps that were sampled ahead, in their order."""

    def __init__(
        self,
        memory: dict[str, Any],
        tasks: Sequence[Task],
        steps: int,
        total: int,
        begin: Begin,
        overlaps: Callable[[], bool] = lambda: False,
    ) -> None:
        """`steps` is k; `total` are those of the stage. What waits in `memory` is taken over.

        `begin` starts to sample a step, and returns what waits for it. It is called before the step before has been
        waited for where `overlaps`.
        """
        self._memory, self._steps, self._total, self._begin = memory, steps, total, begin
        self._overlaps = overlaps
        self.always = steps > 0
        self._tasks = {task.key: task for task in tasks}
        self._waiting = [(Collected.unpacked(item, tasks), item) for item in memory.get(AHEAD, ())]
        self._coming: list[Callable[[], Collected]] = []

    def due(self, step: int) -> range:
        """The steps to begin to sample before step `step` is learned from, with the weights as they are."""
        begun = len(self._waiting) + len(self._coming)
        return range(step + begun, min(step + self._steps, self._total - 1) + 1)

    def take(self, step: int) -> Collected:
        """The rollouts of a step."""
        for number in self.due(step):
            self._coming.append(self._begin(number))
            if not 0 < number - step == self._steps:
                self._wait()
        if not self._waiting:
            self._wait(1)
        return self._waiting.pop(0)[0]

    def settle(self) -> None:
        """Wait for what is being sampled, unless the next step may begin beside it."""
        if not self._overlaps():
            self._wait()

    def store(self) -> None:
        """Wait for what is being sampled, and keep all that waits in the memory."""
        self._wait()
        if self._steps:
            self._memory[AHEAD] = [packed for _, packed in self._waiting]

    def close(self) -> None:
        """Wait for what is being sampled; whatever comes of it is not used."""
        for wait in self._coming:
            with suppress(Exception):
                wait()
        self._coming = []

    def _wait(self, most: int | None = None) -> None:
        """Wait for the steps that are being sampled, in their order; `most` of them."""
        while self._coming and most != 0:
            self._keep(self._coming.pop(0)())
            most = None if most is None else most - 1

    def _keep(self, collected: Collected) -> None:
        self._waiting.append((collected, collected.packed(self._tasks) if self._steps else {}))
