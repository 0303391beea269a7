"""Whether a completion is a correct derivation of a sum, checked step by step without a reference answer.

``5+8=13; 13-3=10`` and a line ``#### 10`` derive ``5+8-3``. It stands for the checker of a formal language, and scores
statements that a model wrote (`stages/conjectures`). The statement is the task's field ``statement``.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen, nearest
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.derivations import fault
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class Derivation(Reward):
    """Scores 1 for a correct derivation."""

    column: Annotated[str, Field(min_length=1)] = "statement"
    """Field of a task with its statement."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a statement."""
        for task in tasks:
            if not isinstance(task.fields.get(self.column), str):
                raise TaskFault(
                    task.key,
                    f"task '{task.key}' has no statement in its column '{self.column}'; "
                    f"{nearest(self.column, task.fields)}",
                )

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Check each completion."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        statement = trajectory.task.fields.get(self.column)
        if not isinstance(statement, str):
            return failure(f"the task has no statement in its column '{self.column}'")
        why = fault(statement, trajectory.completion)
        return Score(value=float(not why), status="wrong" if why else "ok", explanation=why or "every step is correct")
