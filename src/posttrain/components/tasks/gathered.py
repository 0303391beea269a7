"""Other tasks merged by prompt, so that rated completions of one prompt are in one task.

Without it, each row with a prompt, a completion and a rating is a task. Losses that compare completions of one prompt
need them in one task. Rows with different answers to the same prompt are different tasks. Fields other than completions
are those of the first row.
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
    """One task per prompt, with the completions of all its rows."""

    tasks: Tasks
    """The source of the tasks."""

    def load(self) -> Sequence[Task]:
        """One task per prompt, in the order of first occurrence."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and the number of prompts."""
        return f"{self.tasks.describe()}\n{len(self.tasks.load())} rows have {len(self.load())} prompts"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        alike: dict[tuple[str, str | None], list[Task]] = {}
        for task in self.tasks.load():
            alike.setdefault((problem(task), task.answer), []).append(task)
        return [_one_of(members) for members in alike.values()]


def _one_of(members: Sequence[Task]) -> Task:
    """The first task, with the completions of all tasks in their order."""
    return replace(
        members[0],
        demonstrations=tuple(text for task in members for text in task.demonstrations),
        episodes=tuple(episode for task in members for episode in task.episodes),
        preferences=tuple(pair for task in members for pair in task.preferences),
        rated=tuple(rated for task in members for rated in task.rated),
    )
