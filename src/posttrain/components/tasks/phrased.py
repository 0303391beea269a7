r"""Other tasks, whose worked solutions have words of reasoning before some of their steps.

`` 47+35=82; 82-8=74\n#### 74`` becomes `` so 47+35=82; wait 82-8=74\n#### 74``. The words are drawn for each task by
its key and have no meaning: a model that imitates them writes them now and then, and a reward for them can be studied.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Task

WORDS: Final = ("so", "wait", "hmm", "thus", "check", "then", "since", "again")


@frozen
class Phrased(Tasks):
    """Puts words before steps of every demonstration."""

    tasks: Tasks
    """The source of the tasks; demonstrations are steps joined by ``;``, then ``####`` and the answer."""
    words: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = WORDS
    """The words, each equally likely."""
    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.3
    """Probability of a word before a step."""
    seed: NonNegativeInt = 0
    """Which steps have which words."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for a demonstration without an answer."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and what is added."""
        return f"{self.tasks.describe()}\n{self.share:.0%} of the steps of demonstrations begin with one of a few words"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [
            replace(task, demonstrations=tuple(self._with_words(task, text) for text in task.demonstrations))
            for task in self.tasks.load()
        ]

    def _with_words(self, task: Task, text: str) -> str:
        steps, found, answer = text.strip().rpartition("\n#### ")
        if not found:
            raise UserError(
                f"task {task.key}: only demonstrations that end with '#### answer' can have words before their steps; "
                "take generated arithmetic, for example"
            )
        rng = Random(f"phrased:{self.seed}:{task.key}")
        lines = [
            f"{rng.choice(self.words)} {step}" if rng.random() < self.share else step for step in steps.split("; ")
        ]
        return f" {'; '.join(lines)}\n#### {answer}"
