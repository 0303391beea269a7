"""Experts: the demonstrations that each step learns from, beside its rollouts.

Contract: the state is JSON. `choose` is a function of its arguments alone, so that a resumed run has the demonstrations
of the uninterrupted one. They are learned from as they are: no reward, filter or advantage applies to them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.component import Component
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Group, Task

State = Mapping[str, Any]
Shown = tuple[Task, str]
"""A task and one of its demonstrations."""


class Experts(Component):
    """Chooses the demonstrations of a step."""

    batch: int
    """Demonstrations in one update."""

    @property
    def source(self) -> Tasks | None:
        """Where the demonstrations are from; None takes the tasks of the stage."""
        return None

    def start(self) -> State:
        """State before the first step."""
        return {}

    def choose(
        self, state: State, pool: Sequence[Task], groups: Sequence[Group], *, seed: int
    ) -> tuple[State, list[Shown]]:
        """The new state, and the demonstrations of this step, which may be none.

        `groups` are the step's scored rollouts, before any filter.
        """
        raise NotImplementedError

    @classmethod
    def from_text(cls, text: str) -> Mapping[str, Any]:
        """A path or data set name becomes a ``stream`` of its demonstrations; a known kind stays itself."""
        return {"kind": text} if text in cls.kinds() else {"kind": "stream", "tasks": text}


def check_demonstrations(pool: Sequence[Task]) -> None:
    """Raise `UserError` if no task has a demonstration; some tasks may lack one."""
    if not any(task.demonstrations for task in pool):
        raise UserError(
            f"experts learn from demonstrations, but none of the {len(pool)} tasks has one; give a column named "
            "completion, response, demonstration or solution, name other tasks as experts.tasks, or set experts=null"
        )
