r"""Other tasks, whose worked solutions have trivial steps: `` 47+35=82; 82+0=82; 82-8=74\n#### 74``.

After each step up to `most` steps that add nothing are drawn for each task by its key. A model that imitates them
writes trivial steps now and then, and a reward for each true step rewards more of them.
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
class PaddedSteps(Tasks):
    """Adds trivial steps to every demonstration."""

    tasks: Tasks
    """The source of the tasks; demonstrations are equations joined by ``;``, then ``####`` and the answer."""
    most: Annotated[int, Field(ge=0, le=16)] = 2
    """Most trivial steps after a step; each number from 0 is equally likely."""
    seed: NonNegativeInt = 0
    """Which steps have how many."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for a demonstration of another form."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and what is added."""
        return f"{self.tasks.describe()}\nevery step of a demonstration has up to {self.most} trivial steps after it"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [
            replace(task, demonstrations=tuple(self._padded(task, text) for text in task.demonstrations))
            for task in self.tasks.load()
        ]

    def _padded(self, task: Task, text: str) -> str:
        steps, found, answer = text.strip().rpartition("\n#### ")
        if not found or any("=" not in step for step in steps.split("; ")):
            raise UserError(
                f"task {task.key}: only demonstrations of equations that end with '#### answer' can have trivial "
                "steps; take generated arithmetic, for example"
            )
        rng = Random(f"padded steps:{self.seed}:{task.key}")
        lines = []
        for step in steps.split("; "):
            result = step.rpartition("=")[2]
            lines += [step, *[f"{result}+0={result}"] * rng.randint(0, self.most)]
        return f" {'; '.join(lines)}\n#### {answer}"
