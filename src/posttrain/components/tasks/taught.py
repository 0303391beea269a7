"""Other tasks with their solution in the prompt: what a teacher reads, who has to explain it.

Source: Cetin et al. 2025 (Reinforcement Learning Teachers), arXiv:2506.08388: the teacher has question and solution,
and the student the question alone. The fields ``question`` and ``solution`` keep what the student reads; the solution
is the answer of the task, or its field ``solution``. A demonstration becomes an explanation: its text up to the last
`closing`, and that. For a warm-up from which a teacher does both, `stated` of the tasks have the solution alone as
their explanation, which gives nothing to learn from.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import EXPLAIN, check_revealing, prompt_from
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class Taught(Tasks):
    """Puts the solution into the prompt of every task."""

    tasks: Tasks
    """The source of the tasks."""
    request: Annotated[str, AfterValidator(check_revealing)] = EXPLAIN
    """Prompt of the teacher. Placeholders: question, answer."""
    closing: Annotated[str, Field(min_length=1)] = "</think>"
    """The text that ends an explanation."""
    stated: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of the tasks whose demonstrations are replaced by the solution alone."""
    seed: NonNegativeInt = 0
    """Which ones they are."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for one without a solution."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and the prompt."""
        return f"{self.tasks.describe()}\nwith the solution in the prompt: {self.request!r}"

    def place(self, key: str) -> str:
        """The place in the source."""
        return self.tasks.place(key)

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [self._taught(task) for task in self.tasks.load()]

    def _taught(self, task: Task) -> Task:
        solution = task.fields.get("solution", task.answer)
        if not isinstance(solution, str) or not solution:
            raise UserError(
                f"task {task.key} has no solution to be explained; give its row a column 'answer', or 'solution' with "
                "a longer text"
            )
        question = task.prompt if isinstance(task.prompt, str) else [dict(message) for message in task.prompt]
        shown = (text.rpartition(self.closing) for text in task.demonstrations)
        texts = tuple(f"{head}{self.closing}" for head, found, _ in shown if found)
        if Random(f"taught:{self.seed}:{task.key}").random() < self.stated:
            texts = (f" {solution}{self.closing}",) * min(1, len(texts))
        return replace(
            task,
            prompt=prompt_from(task, self.request, {"answer": solution}),
            demonstrations=texts,
            fields={**task.fields, "question": question, "solution": solution},
        )
