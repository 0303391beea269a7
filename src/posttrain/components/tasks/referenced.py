"""Preference pairs with a reference answer: which candidate is more like what the reference's writer would write?

Source: POLAR, arXiv:2507.05197, and its release; `posttrain.datasets.references` has the form of the text. The pairs of
each task are put after its prompt, its reference and its prompt again, for the stage `reward_model`; the reward
`referenced_model` reads rollouts in the same form. The reference is the field ``reference`` of a task, or else its
demonstration, or its answer.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.references import SEPARATOR, compared
from posttrain.datasets.templates import question_of
from posttrain.errors import UserError
from posttrain.types import Task

Characters = Annotated[int, Field(ge=1, le=10_000_000)]


@frozen
class Referenced(Tasks):
    """Other tasks, their pairs after a reference."""

    tasks: Tasks
    """The source; at least one task must have preferences."""
    line: str = "\n"
    """Between prompt and answer: a line end, or nothing for a plain continuation, as in pre-training."""
    separator: Annotated[str, Field(min_length=1)] = SEPARATOR
    """Between the reference and the second prompt."""
    longest_answer: Characters = 4096
    """Characters of which reference and candidates keep the first."""
    longest: Characters = 16384
    """Characters in all; the prompt keeps its last ones."""

    def load(self) -> Sequence[Task]:
        """One task for each pair. Raises `UserError` without a pair, and for a task without a reference."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and the number of pairs."""
        return f"{self.tasks.describe()}\n{len(self._loaded):,} pairs, each after the reference of its task"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        tasks = [task for task in self.tasks.load() if task.preferences]
        if not tasks:
            raise UserError(
                f"no task of kind '{self.tasks.kind}' has a preference to compare with a reference; give columns "
                "named chosen and rejected"
            )
        return [one for task in tasks for one in self._split(task)]

    def _split(self, task: Task) -> Sequence[Task]:
        """A task for each pair, since candidates of other lengths may leave the prompt another part."""
        shown, made = question_of(task), []
        for number, pair in enumerate(task.preferences, 1):
            text = compared(
                shown,
                pair.reference or reference_of(task),
                (pair.chosen, pair.rejected),
                line=self.line,
                separator=self.separator,
                longest_answer=self.longest_answer,
                longest=self.longest,
            )
            chosen, rejected = text.candidates
            made.append(
                replace(
                    task,
                    key=task.key if number == 1 else f"{task.key}-{number}",
                    prompt=text.before,
                    preferences=(replace(pair, chosen=chosen, rejected=rejected),),
                    demonstrations=(),
                    rated=(),
                )
            )
        return made


def reference_of(task: Task) -> str:
    """The reference of a task: its field, its demonstration, or its answer. Raises `UserError` without any."""
    given = task.fields.get("reference")
    found = given if isinstance(given, str) else next(iter(task.demonstrations), None) or task.answer
    if not found:
        raise UserError(
            f"task {task.key} has no reference to compare with; give the row a column reference, completion or answer"
        )
    return found
