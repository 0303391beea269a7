r"""Other tasks, whose worked solutions hold redundant lines, with the answer in a box inside the thoughts.

Each step is written again up to `most` times, as a check: `` 47+35=82; 82-8=74\n#### 74`` becomes
``<think>47+35=82; check 47+35=82; 82-8=74\nso \boxed{74}</think>``. How often is drawn for each task by its key. A
model that imitates them solves as much and writes more than it needs, which reinforcement with a length reward can take
back: the second stage of arXiv:2507.08267.
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
class Wordy(Tasks):
    """Adds checks to the steps of every demonstration."""

    tasks: Tasks
    """The source of the tasks; demonstrations are steps joined by ``;``, then ``####`` and the answer."""
    most: Annotated[int, Field(ge=0, le=8)] = 2
    """Most checks of a step; each number from 0 is equally likely."""
    seed: NonNegativeInt = 0
    """Which steps have how many."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for a demonstration without an answer."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and what is added."""
        return f"{self.tasks.describe()}\nevery step of a demonstration has up to {self.most} checks, in <think> tags"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [
            replace(task, demonstrations=tuple(self._with_checks(task, text) for text in task.demonstrations))
            for task in self.tasks.load()
        ]

    def _with_checks(self, task: Task, text: str) -> str:
        steps, found, answer = text.strip().rpartition("\n#### ")
        if not found:
            raise UserError(
                f"task {task.key}: only demonstrations that end with '#### answer' can be made longer; take generated "
                "arithmetic, for example"
            )
        rng = Random(f"wordy:{self.seed}:{task.key}")
        lines = []
        for step in steps.split("; "):
            lines += [step, *[f"check {step}"] * rng.randint(0, self.most)]
        return f"<think>{'; '.join(lines)}\nso \\boxed{{{answer}}}</think>"
