"""Numbered episodes of a control environment; the task's key draws the initial state."""

from collections.abc import Sequence

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Task


@frozen
class Episodes(Tasks):
    """Numbered episodes without other content."""

    size: PositiveInt = 2000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Seed of the episodes, a part of their names."""

    def load(self) -> Sequence[Task]:
        """The tasks, in order."""
        return keyed(Task(key="", prompt=f"episode {self.seed}-{index}") for index in range(self.size))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"episodes of a control task (seed {self.seed})", self.load())
