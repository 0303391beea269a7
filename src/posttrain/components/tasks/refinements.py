"""Exercises in doing better: a problem, a made up attempt at it and a critique; the problem's demonstration is right.

The prompt is what `rollouts/critiqued` asks of a policy, by the same texts, so that imitating these teaches a small
model what a critique is for. An attempt is the demonstration, or the demonstration with another task's answer in the
place of its own.
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
    """Tasks that ask for a refinement, made of others that have answers and demonstrations."""

    of: Tasks
    """The problems."""
    texts: Critiques = Critiques()
    """How the critique is said and the refinement asked for; those of the rollout."""
    seed: NonNegativeInt = 0
    """Which attempts are made up."""
    right: Annotated[float, Field(ge=0.0, le=1.0)] = 0.25
    """Share of the attempts that are right."""
    bare: bool = False
    """Whether a made up attempt is the answer alone, as ``#### 74``, without the working before it."""

    def load(self) -> Sequence[Task]:
        """An exercise for each problem. Raises `UserError` where one lacks an answer or a demonstration."""
        problems = self.of.load()
        for task in problems:
            if task.answer is None or not task.demonstrations:
                raise UserError(
                    f"task {task.key} has no answer or no demonstration, so no refinement can be made of it"
                )
        return keyed(self._exercise(task, problems) for task in problems)

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"refinements ({self.right:.0%} of the attempts are right; seed {self.seed})", self.load())

    def _exercise(self, task: Task, others: Sequence[Task]) -> Task:
        """One exercise; it depends on the task, the seed and the list of problems alone."""
        rng = Random(f"refinements:{self.seed}:{task.key}")
        (answer, demonstration), other = (str(task.answer), task.demonstrations[0]), str(rng.choice(others).answer)
        right = rng.random() < self.right or other == answer
        attempt = f" #### {answer}" if self.bare else demonstration
        if not right:
            head, found, tail = attempt.rpartition(answer)
            attempt = f"{head}{other}{tail}" if found else f"{attempt} {other}"
        critique = self.texts.revealed(right=right, answer=answer)
        return Task(
            key="",
            prompt=self.texts.asked_of_policy(task, attempt, critique),
            answer=answer,
            domain="refinement",
            demonstrations=(demonstration,),
        )
