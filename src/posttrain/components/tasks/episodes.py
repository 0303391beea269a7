"""Names of episodes of a control task: each draws the state that the world begins in."""

from collections.abc import Sequence

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Task


@frozen
class Episodes(Tasks):
    """Episodes by number."""

    size: PositiveInt = 2000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which episodes: another seed names others."""

    def load(self) -> Sequence[Task]:
        """The tasks, in order."""
        return keyed(Task(key="", prompt=f"episode {self.seed}-{index}") for index in range(self.size))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"episodes of a control task (seed {self.seed})", self.load())
