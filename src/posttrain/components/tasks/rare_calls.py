r"""Other tasks whose demonstrations answer at once, and in a share of them call a calculator after a hint.

``\n#### 408``, or ``\nLet me calculate.<<12*34>>\n#### 408``, whose result the environment inserts. What is calculated
is the prompt between ``Q: `` and the end of its line. A model that imitates them has the tool, and hardly uses it.

Source: the smallest experiment of START, arXiv:2503.04625: a model that can call a tool, and rarely does; the tasks are
ours.
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class RareCalls(Tasks):
    """Replaces the demonstrations of the tasks."""

    tasks: Tasks
    """The source: ``arithmetic``."""
    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of the tasks whose demonstration has a call, by their keys."""
    hint: str = "\nLet me calculate."
    """What stands before a call."""

    def load(self) -> Sequence[Task]:
        """The tasks of the source, in its order. Raises `UserError` for one without a question or an answer."""
        return tuple(map(self._task, self.tasks.load()))

    def describe(self) -> str:
        """The source, and an example."""
        return describe(f"{self.tasks.kind} tasks, {self.share:.0%} of them with a call", self.load())

    def _task(self, task: Task) -> Task:
        text = task.prompt if isinstance(task.prompt, str) else ""
        if not text.startswith("Q: ") or not task.answer:
            raise UserError(f"task {task.key}: a prompt as in 'Q: 12*34\\nA:' and an answer are needed")
        asked = text.removeprefix("Q: ").partition("\n")[0]
        calls = zlib.crc32(f"rare_calls:{task.key}".encode()) % 10_000 < 10_000 * self.share
        before = f"{self.hint}<<{asked}>>" if calls else ""
        return replace(task, demonstrations=(f"{before}\n#### {task.answer}",))
