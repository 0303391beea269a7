"""Other tasks, whose demonstrations end with a stated confidence, ``<confidence>0.7</confidence>``.

The confidence is random: imitation teaches the format without any calibration, which a reward can train.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.types import Task


@frozen
class StatedConfidence(Tasks):
    """Adds a confidence to every demonstration, on a line of its own."""

    tasks: Tasks
    """The source of the tasks."""
    levels: Annotated[int, Field(ge=2, le=101)] = 11
    """Number of different confidences, from 0 to 1 in equal steps."""
    seed: NonNegativeInt = 0
    """Which confidences are drawn."""
    tag: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")] = "confidence"
    """Name of the tag around the confidence."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and the added confidence."""
        return f"{self.tasks.describe()}\nevery demonstration ends with a random <{self.tag}>, {self.levels} levels"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [replace(task, demonstrations=self._ended(task)) for task in self.tasks.load()]

    def _ended(self, task: Task) -> tuple[str, ...]:
        rng = Random(f"stated confidence:{self.seed}:{task.key}")
        steps = self.levels - 1
        return tuple(
            f"{text}\n<{self.tag}>{round(rng.randint(0, steps) / steps, 3):g}</{self.tag}>"
            for text in task.demonstrations
        )
