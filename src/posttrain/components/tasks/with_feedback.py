r"""Other tasks with the feedback on their demonstration in the prompt; held-out tasks are asked with all of it good.

Source: feedback-aware fine-tuning (FAFT), Chen et al. 2024, arXiv:2408.06318, appendix A: the feedback stands before
the plan, one line per check in a fixed order; at test every line has the word for success.

The field ``checks`` of a task has its checks by name: true, false, or a text for one that failed, which stands in place
of the word. ``budget: success\n`` is such a line. Names and order of lines are the same in training and at test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import StringConstraints

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Message, Task

Word = Annotated[str, StringConstraints(min_length=1, max_length=50)]


@frozen
class WithFeedback(Tasks):
    """Puts the results of checks after each prompt."""

    tasks: Tasks
    """The source of the tasks, each with a field ``checks``."""
    passed: Word = "success"
    """Word for a check that the demonstration passes."""
    failed: Word = "fail"
    """Word for one that it does not pass."""
    asked: Mapping[str, bool] = field(default_factory=dict)
    """Results that held-out tasks have in place of success, by check: a control, which should then fail."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for one without checks."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and the lines of held-out tasks."""
        lines = self._lines(dict.fromkeys(self._loaded[0].fields["checks"], True) | dict(self.asked))
        return f"{self.tasks.describe()}\nheld-out tasks are asked with: {lines!r}"

    def place(self, key: str) -> str:
        """The place in the source."""
        return self.tasks.place(key)

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        tasks = self.tasks.load()
        names = list(tasks[0].fields.get("checks") or {}) if tasks else []
        return [self._with_feedback(task, names) for task in tasks]

    def _with_feedback(self, task: Task, names: Sequence[str]) -> Task:
        checks = task.fields.get("checks")
        if not isinstance(checks, Mapping) or not checks or not all(isinstance(c, bool | str) for c in checks.values()):
            raise UserError(
                f"task {task.key}: its field 'checks' is {checks!r}; give a mapping from the name of each check to "
                "true, false, or a text for one that failed"
            )
        if list(checks) != list(names):
            raise UserError(
                f"task {task.key}: its checks are {', '.join(checks)}, those of the first task {', '.join(names)}; at "
                "test all lines are shown, so every task needs the same checks in the same order"
            )
        if unknown := [name for name in self.asked if name not in checks]:
            raise UserError(f"tasks.asked has '{unknown[0]}', which is no check; they are {', '.join(checks)}")
        own = replace(task, prompt=_appended(task.prompt, self._lines(checks)))
        good = dict.fromkeys(checks, True) | dict(self.asked)
        return replace(own, asked=replace(task, prompt=_appended(task.prompt, self._lines(good)), asked=None))

    def _lines(self, checks: Mapping[str, Any]) -> str:
        words = {True: self.passed, False: self.failed}
        return "".join(f"{name}: {c if isinstance(c, str) else words[c]}\n" for name, c in checks.items())


def _appended(prompt: str | tuple[Message, ...], lines: str) -> str | tuple[Message, ...]:
    """The prompt, or the last message of a chat, with the lines after it."""
    if isinstance(prompt, str):
        return prompt + lines
    last = prompt[-1]
    return (*prompt[:-1], Message(role=last["role"], content=f"{last['content']}\n\n{lines.rstrip()}"))
