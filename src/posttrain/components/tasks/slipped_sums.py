r"""Other tasks whose demonstrations give a wrong result: the right one and a constant more.

Only the result after ``####`` of a demonstration is changed: `` 47+35=82; 82-8=74\n#### 75``; answers stay right. It is
a source of poor demonstrations, whose mistake has a system that a model can learn.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class SlippedSums(Tasks):
    """Puts a systematic slip into the result of every demonstration."""

    tasks: Tasks
    """The source of the tasks; their demonstrations end in ``#### `` and a whole number."""
    slip: int = Field(default=1, ge=-1000, le=1000)
    """What is added to the result."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for a demonstration without a whole number at its end."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and what is changed."""
        return f"{self.tasks.describe()}\nthe result of every demonstration is off by {self.slip:+d}"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [
            replace(task, demonstrations=tuple(self._slipped(task, text) for text in task.demonstrations))
            for task in self.tasks.load()
        ]

    def _slipped(self, task: Task, text: str) -> str:
        working, mark, result = text.rpartition("#### ")
        if not mark or not result.strip().lstrip("-").isdecimal():
            raise UserError(f"task {task.key}: its demonstration does not end in '#### ' and a whole number")
        return f"{working}{mark}{int(result) + self.slip}"
