"""Scores lists of the tasks `wanted_words`: the share of wanted words, and the number of words, both from 0 to 4.

The value is helpfulness alone; both are parts, ``helpfulness`` and ``verbosity``, for rewards that weigh them. Which
words are wanted is the field ``wanted`` of the task.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.wanted_words import labels_of
from posttrain.errors import TaskFault
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class WantedWords(Reward):
    """Counts words."""

    correct_at: Annotated[float, Field(ge=0.0, le=4.0)] = 4.0
    """Smallest helpfulness that counts as correct: 4 where all words are wanted."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without wanted words."""
        for task in tasks:
            if not _wanted(task):
                raise TaskFault(
                    task.key, f"task '{task.key}' has no wanted words; give a column 'wanted' with a list of words"
                )

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Count the words of each text."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        if not _wanted(trajectory.task):
            return failure(f"task '{trajectory.task.key}' has no wanted words")
        found = labels_of(trajectory.completion, _wanted(trajectory.task))
        parts = {name: Score(value=value, status="ok") for name, value in found.items()}
        value = found["helpfulness"]
        explanation = ", ".join(f"{name} {x:.3g}" for name, x in found.items())
        return Score(
            value=value, status="ok" if value >= self.correct_at else "wrong", explanation=explanation, parts=parts
        )


def _wanted(task: Task) -> list[str]:
    own = task.fields.get("wanted")
    return [str(word) for word in own] if isinstance(own, (list, tuple)) else []
