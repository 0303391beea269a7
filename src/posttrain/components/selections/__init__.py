"""Which of a stage's tasks are trained on, where that takes a look by the models: decided once, as the stage begins.

Contract: what is seen is JSON, and what is chosen follows from it alone, so that a resumed run, whose models have moved
on since, goes on with the same tasks; a task comes back as it was or with fewer of its pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.component import Component
from posttrain.engines import Sampler
from posttrain.types import Task


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The tasks that are left."""

    tasks: Sequence[Task]
    """In their old order; none at all, and the stage is left out."""
    said: str
    """How many of how many, and by what bound: a sentence for the record."""


class Selection(Component):
    """Chooses among tasks by what models make of them."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose models it asks; the recipe must have them when the stage begins."""
        return frozenset()

    async def look(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """What must be known of the tasks, in their order."""
        raise NotImplementedError

    def choose(self, tasks: Sequence[Task], seen: Any) -> Chosen:
        """The tasks to train on, by what was seen."""
        raise NotImplementedError
