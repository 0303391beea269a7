"""Whether a text has the words of its seed and no others, each in one of its forms: a label filter by rule.

The forms are those of `posttrain.datasets.disguises`; the words are in the task's column ``words``. A text that keeps
them keeps the categories of its seed.
"""

from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.disguises import keeps
from posttrain.errors import TaskFault
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class SameWords(Reward):
    """Scores 1 where all words are kept."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without words."""
        for task in tasks:
            if not isinstance(task.fields.get("words"), list | tuple):
                raise TaskFault(
                    task.key, f"task '{task.key}' has no list of words to keep; give its row a column 'words'"
                )

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare the words."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        words = trajectory.task.fields.get("words")
        if not isinstance(words, list | tuple):
            return failure("the task has no list of words to keep")
        kept = keeps([*map(str, words)], trajectory.completion)
        return Score(value=float(kept), status="ok" if kept else "wrong")
