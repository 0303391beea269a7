"""Other tasks, with each preference split into two rated completions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Rated, Task


@frozen
class Unpaired(Tasks):
    """Rates chosen completions as good, rejected ones as bad."""

    tasks: Tasks
    """The source of the tasks; at least one must have preferences."""
    chosen: float = 1.0
    """Rating of a chosen completion."""
    rejected: float = -1.0
    """Rating of a rejected completion."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` when none has a preference."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and the ratings."""
        return f"{self.tasks.describe()}\nchosen completions are rated {self.chosen:g}, rejected ones {self.rejected:g}"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        tasks = self.tasks.load()
        if not any(task.preferences for task in tasks):
            raise UserError(
                f"none of the {len(tasks)} tasks of kind '{self.tasks.kind}' has a preference to split; give "
                "columns named chosen and rejected, or use the tasks as they are"
            )
        return [replace(task, preferences=(), rated=(*task.rated, *self._split(task))) for task in tasks]

    def _split(self, task: Task) -> Sequence[Rated]:
        return [
            rated
            for pair in task.preferences
            for rated in (
                Rated(completion=pair.chosen, rating=self.chosen),
                Rated(completion=pair.rejected, rating=self.rejected),
            )
        ]
