"""Refinement tasks: a problem, a synthetic answer and a critique, with the problem's demonstration as the target.

The prompt has the templates of `rollouts/critiqued`, so that supervised training on these tasks prepares a small model
for refinements. The synthetic answer is the demonstration, or the demonstration with the answer of another task.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.templates import Critiques
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class Refinements(Tasks):
    """Refinement tasks, made from tasks with answers and demonstrations."""

    of: Tasks
    """The problems."""
    texts: Critiques = Critiques()
    """Templates of critiques and prompts, equal to those of the rollout."""
    seed: NonNegativeInt = 0
    """Seed of the synthetic answers."""
    right: Annotated[float, Field(ge=0.0, le=1.0)] = 0.25
    """Share of the synthetic answers that are correct."""
    bare: bool = False
    """Whether a synthetic answer is the result alone, as ``#### 74``, without a worked solution."""

    def load(self) -> Sequence[Task]:
        """One task per problem. Raises `UserError` for a problem without an answer or a demonstration."""
        problems = self.of.load()
        for task in problems:
            if task.answer is None or not task.demonstrations:
                raise UserError(
                    f"task {task.key} has no answer or no demonstration, so no refinement can be made of it"
                )
        return keyed(self._exercise(task, problems) for task in problems)

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"refinements ({self.right:.0%} of the answers are correct; seed {self.seed})", self.load())

    def _exercise(self, task: Task, others: Sequence[Task]) -> Task:
        """One task, a function of the problem, the seed and the list of problems."""
        rng = Random(f"refinements:{self.seed}:{task.key}")
        (answer, demonstration), other = (str(task.answer), task.demonstrations[0]), str(rng.choice(others).answer)
        right = rng.random() < self.right or other == answer
        given = f" #### {answer}" if self.bare else demonstration
        if not right:
            head, found, tail = given.rpartition(answer)
            given = f"{head}{other}{tail}" if found else f"{given} {other}"
        critique = self.texts.revealed(right=right, answer=answer)
        return Task(
            key="",
            prompt=self.texts.request_to_policy(task, given, critique),
            answer=answer,
            domain="refinement",
            demonstrations=(demonstration,),
        )
