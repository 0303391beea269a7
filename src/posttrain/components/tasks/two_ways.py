r"""Other tasks, demonstrated in two modes: thinking first, or answering at once, after a choice between them.

The demonstration `` 47+35=82; 82-8=74\n#### 74`` becomes one of

    <judge>3 numbers, think on</judge><think>47+35=82; 82-8=74</think>
    #### 74

    <judge>3 numbers, think off</judge>
    #### 74

where ``3 numbers`` is the domain of the task. Which one is drawn by the seed, whatever the task, for a start that does
both.

Source: the form of KAT-V1, arXiv:2507.08297.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class TwoWays(Tasks):
    """Puts every demonstration into one of two modes."""

    tasks: Tasks
    """The source of the tasks; their demonstrations end in ``#### `` and the answer."""
    on: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Share of the tasks that are demonstrated with thoughts."""
    seed: NonNegativeInt = 0
    """Which ones they are."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for a demonstration without thoughts or an answer."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and the share of thoughts."""
        return f"{self.tasks.describe()}\ndemonstrated with a choice of mode, {self.on:.0%} thinking"

    def place(self, key: str) -> str:
        """The place in the source."""
        return self.tasks.place(key)

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [
            replace(task, demonstrations=tuple(self._chosen(task, text) for text in task.demonstrations))
            for task in self.tasks.load()
        ]

    def _chosen(self, task: Task, text: str) -> str:
        thoughts, mark, answer = text.rpartition("#### ")
        if not mark or not thoughts.strip() or not answer.strip():
            raise UserError(f"task {task.key}: its demonstration is no thoughts with '#### ' and the answer at its end")
        on = Random(f"two ways:{self.seed}:{task.key}").random() < self.on
        opening = f"<judge>{task.domain or 'a task'}, think {'on' if on else 'off'}</judge>"
        return f"{opening}{f'<think>{thoughts.strip()}</think>' if on else ''}\n#### {answer}"
