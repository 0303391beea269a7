"""Other tasks' pairs as simulated annotators prefer them: planted faults in any data with pairs.

The pairs of the source are taken for true, by their strength (`strength` where they state none). Annotators see the
aspects of a pair as its traits, and the fields ``writer_chosen`` and ``writer_rejected`` of the pair or its task as who
wrote what.

    posttrain diagnose annotators tasks='{kind: annotated, tasks: pairs.jsonl, annotators: [noise, [reversal, noise]]}'
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.annotators import Annotators
from posttrain.components.tasks import Tasks
from posttrain.datasets.annotating import relabelled
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class AnnotatedPairs(Tasks):
    """Tasks with the preferences of annotators."""

    tasks: Tasks
    """The source; at least one task must have preferences."""
    annotators: Annotated[Annotators, Field(min_length=1)]
    """Who compares the texts of each pair."""
    seed: NonNegativeInt = 0
    """What annotators draw."""
    strength: Annotated[float, Field(gt=0.0, le=1e6)] = 1.0
    """Difference in quality of a pair that states no strength."""

    def load(self) -> Sequence[Task]:
        """The tasks in the order of the source. Raises `UserError` where none has a preference."""
        return self._loaded

    def describe(self) -> str:
        """The number of annotators and preferences, and the description of the source."""
        pairs = sum(len(task.preferences) for task in self._loaded)
        return f"{pairs:,} preferences of {len(self.annotators):,} annotators\n{self.tasks.describe()}"

    def place(self, key: str) -> str:
        """That of the source."""
        return self.tasks.place(key)

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        tasks = self.tasks.load()
        if not any(task.preferences for task in tasks):
            raise UserError(
                "none of the tasks has a preference that annotators could state again; give columns named chosen and "
                "rejected, or tasks that make pairs, such as traits"
            )
        return [self._of(task, number) for number, task in enumerate(tasks)]

    def _of(self, task: Task, number: int) -> Task:
        found = [
            one
            for i, pair in enumerate(task.preferences)
            for one in relabelled(
                pair,
                self.annotators,
                f"annotated:{self.seed}:{task.key}:{i}",
                task=task,
                strength=self.strength,
                number=number,
            )
        ]
        return replace(task, preferences=tuple(found))
