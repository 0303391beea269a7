r"""Other tasks, whose demonstrations have their parts in tags: ``<think>47+35=82; 82-8=74</think><answer>74</answer>``.

Completions of its pairs have the same form. The answer is the text after the last ``####``, and the thoughts are the
text before it. A text without ``####`` consists of thoughts, and its answer is that of the task. With one tag the
answer is the last line: ``<think>47+35=82; 82-8=74</think>\n74``.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Task

TagName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]


@frozen
class Tagged(Tasks):
    """Puts tags around the thoughts and the answer of every demonstration."""

    tasks: Tasks
    """The source of the tasks."""
    tags: Annotated[tuple[TagName, ...], Field(min_length=1, max_length=2)] = ("think", "answer")
    """Names of the tags around the thoughts and around the answer, or around the thoughts alone."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for a demonstration without any answer."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and the format of its demonstrations."""
        return f"{self.tasks.describe()}\nevery demonstration has the form {self._form('...', '...')}"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [self._tagged(task) for task in self.tasks.load()]

    def _tagged(self, task: Task) -> Task:
        pairs = (
            replace(pair, chosen=self._in_tags(task, pair.chosen), rejected=self._in_tags(task, pair.rejected))
            for pair in task.preferences
        )
        shown = tuple(self._in_tags(task, text) for text in task.demonstrations)
        return replace(task, demonstrations=shown, preferences=tuple(pairs))

    def _in_tags(self, task: Task, text: str) -> str:
        thoughts, found, answer = text.rpartition("####")
        thoughts, answer = (thoughts, answer) if found else (text, task.answer or "")
        if not answer.strip():
            raise UserError(
                f"task {task.key}: the demonstration has no '#### answer' at its end, and the task no answer either; "
                "give its row an 'answer' column"
            )
        return self._form(thoughts.strip(), answer.strip())

    def _form(self, thoughts: str, answer: str) -> str:
        parts = [f"<{tag}>{text}</{tag}>" for tag, text in zip(self.tags, (thoughts, answer), strict=False)]
        return "".join(parts) if len(parts) == 2 else f"{parts[0]}\n{answer}"
