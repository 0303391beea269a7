"""Demonstrations of the tasks that the policy always failed, collected until there are enough for an update.

Source: ReLIFT, Ma et al. 2025, arXiv:2506.07527, and its released code: a task joins the buffer where every rollout has
exactly the reward of failure; the newest tasks come first. Once the buffer has `batch` tasks, the first ones are
learned from and leave it; the rest stays. A task may join again in a later epoch.

Differs: the release stops with an error where the buffer is empty; here nothing is learned from then. A task without a
demonstration does not join.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.experts import Experts, Shown, State
from posttrain.components.tasks import Tasks
from posttrain.types import Group, Task


@frozen
class Failed(Experts):
    """A buffer of failed tasks."""

    tasks: Tasks | None = None
    """Where the demonstrations are from, by the keys of tasks; None takes the tasks of the stage."""
    batch: PositiveInt = 128
    """Tasks of an update, and size at which the buffer gives them (128 in the paper)."""
    fail: float = 0.0
    """The reward of failure (0 in the paper). A group with any other reward, a penalty for the format for example, is
    not a failed one."""
    first: Literal["newest", "oldest"] = "newest"
    """Which tasks are taken first. With ``newest``, as released, old tasks may wait for ever."""

    @property
    def source(self) -> Tasks | None:
        """The setting `tasks`."""
        return self.tasks

    def start(self) -> State:
        """State before the first step: an empty buffer, in the order in which tasks are taken."""
        return {"waiting": []}

    def choose(
        self, state: State, pool: Sequence[Task], groups: Sequence[Group], *, seed: int
    ) -> tuple[State, list[Shown]]:
        """Add the failed tasks of the step, then take `batch` tasks if there are that many."""
        known = {task.key: task for task in pool if task.demonstrations}
        failed = [key for group in groups if (key := self._failed(group)) in known]
        waiting = [key for key in state["waiting"] if key in known]
        waiting = [*failed, *waiting] if self.first == "newest" else [*waiting, *failed]
        if len(waiting) < self.batch:
            return {"waiting": waiting}, []
        taken, left = waiting[: self.batch], waiting[self.batch :]
        return {"waiting": left}, [(known[key], known[key].demonstrations[0]) for key in taken]

    def _failed(self, group: Group) -> str:
        """The key of the group's task if all its rollouts have the reward of failure; else empty."""
        own = [t.score for t in group if not t.given]
        scored = [score.value for score in own if score is not None and score.status != "error"]
        failed = bool(scored) and len(scored) == len(own) and all(value == self.fail for value in scored)
        return group.trajectories[0].task.key if failed else ""
