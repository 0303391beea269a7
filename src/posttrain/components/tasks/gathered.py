"""Other tasks, those with the same prompt made one: rated completions that were given row by row, side by side.

A row of a file with a prompt, a completion and a rating is a task by itself. Losses that compare completions of one
prompt need them in one task. Rows with another answer to the same prompt are another task. Whatever completions do not
have a part in is that of the first row.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.keys import problem
from posttrain.types import Task


@frozen
class Gathered(Tasks):
    """One task for each prompt, with the completions of all."""

    tasks: Tasks
    """Where the tasks come from."""

    def load(self) -> Sequence[Task]:
        """A task for each prompt, in the order in which prompts are first seen."""
        return self._loaded

    def describe(self) -> str:
        """What the tasks are, and how many are left."""
        return f"{self.tasks.describe()}\n{len(self.tasks.load())} rows have {len(self.load())} prompts"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        alike: dict[tuple[str, str | None], list[Task]] = {}
        for task in self.tasks.load():
            alike.setdefault((problem(task), task.answer), []).append(task)
        return [_one_of(members) for members in alike.values()]


def _one_of(members: Sequence[Task]) -> Task:
    """The first task, with what was written for any of them, in their order."""
    return replace(
        members[0],
        demonstrations=tuple(text for task in members for text in task.demonstrations),
        episodes=tuple(episode for task in members for episode in task.episodes),
        preferences=tuple(pair for task in members for pair in task.preferences),
        rated=tuple(rated for task in members for rated in task.rated),
    )
