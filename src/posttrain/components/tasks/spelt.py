r"""Other tasks, whose answers are spelt in letters: ``a`` for 0 to ``j`` for 9, so that 129 is ``bcj``.

The prompt begins with ``L:`` in place of ``Q:``, and the answer after the last ``####`` of a demonstration is spelt
too: ``L: 49+80\nA:``, and `` 49+80=129\n#### bcj``. A model that has not been shown the code hardly ever finds it by
sampling: an answer of three digits is one of a thousand.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Task

LETTERS: Final = str.maketrans("0123456789", "abcdefghij")


@frozen
class Spelt(Tasks):
    """Spells the answer of every task, and marks its prompt."""

    tasks: Tasks
    """The source of the tasks; their answers are whole numbers, their prompts begin with ``Q:``."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for a task without an answer or with another prompt."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and what is changed."""
        return f"{self.tasks.describe()}\nevery answer is spelt in letters, a for 0 to j for 9, and Q: is L:"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [_spelt(task) for task in self.tasks.load()]


def _spelt(task: Task) -> Task:
    if task.answer is None or not isinstance(task.prompt, str) or not task.prompt.startswith("Q:"):
        raise UserError(
            f"task {task.key}: only a task with an answer and a prompt that begins with 'Q:' can be spelt; take "
            "generated arithmetic, for example"
        )
    return replace(
        task,
        prompt="L:" + task.prompt.removeprefix("Q:"),
        answer=task.answer.translate(LETTERS),
        demonstrations=tuple(_spelt_end(text) for text in task.demonstrations),
    )


def _spelt_end(text: str) -> str:
    """A demonstration with its answer in letters; one without ``####`` is the answer."""
    before, mark, answer = text.rpartition("####")
    return before + mark + answer.translate(LETTERS)
