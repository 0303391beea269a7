r"""Generated preferences: a worked solution of a sum, preferred to one with a slip, or to the bare result.

The tasks are those of `posttrain.components.tasks.arithmetic` of the same size, seed and difficulty. The chosen
completion is the worked solution, `` 47+35=82; 82-8=74\n#### 74``. The rejected one is a ``slip``, one wrong step that
is carried on correctly, `` 47+35=92; 92-8=84\n#### 84``; or ``unworked``, the result without steps, `` #### 74``.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.annotators import Annotators
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.arithmetic import Arithmetic, Digits, Terms
from posttrain.datasets.annotating import Compared, preferences
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered
from posttrain.types import Preference, Task

SLIPS = (-10, -2, -1, 1, 2, 10)
"""Errors of a step: a carry that was forgotten or made up, or a number next to the correct one."""


@frozen
class WorkedSolutions(Tasks):
    """Sums and differences of whole numbers, each with a preferred worked solution."""

    RENAMED: ClassVar = {"wrong_share": "annotators=[{kind: noise, rate: ..., spread: 0}]"}

    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks, and which slips, are drawn."""
    terms: Annotated[tuple[Terms, Terms], Ordered] = (2, 3)
    """Fewest and most numbers in a task."""
    digits: Annotated[tuple[Digits, Digits], Ordered] = (1, 2)
    """Fewest and most digits of a number."""
    operators: Literal["+-", "+", "-"] = "+-"
    """Operators that are used."""
    rejected: Literal["slip", "unworked"] = "slip"
    """Kind of the rejected completion."""
    annotators: Annotators = ()
    """Who compares both solutions, which differ in quality by 1; none prefers the right one always."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return [self._with_preference(task) for task in self._arithmetic.load()]

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"worked solutions of arithmetic, rejected: {self.rejected} (seed {self.seed})", self.load())

    @property
    def _arithmetic(self) -> Arithmetic:
        return Arithmetic(
            size=self.size, seed=self.seed, terms=self.terms, digits=self.digits, operators=self.operators
        )

    def _with_preference(self, task: Task) -> Task:
        """The task with its correct solution preferred to a worse one."""
        rng = Random(f"workings:{self.seed}:{task.key}")  # not the kind: draws stay those of before its renaming
        (right,) = task.demonstrations
        wrong = slipped(right, rng) if self.rejected == "slip" else f" #### {task.answer}"
        notes = {"notes": ["right steps", "a slip" if self.rejected == "slip" else "no steps"]}
        if not self.annotators:
            return replace(task, preferences=(Preference(chosen=right, rejected=wrong, fields=notes),))
        compared = Compared(texts=(right, wrong), gap=1.0, number=int(task.key) if task.key.isdigit() else 0)
        found = preferences(compared, self.annotators, f"workings:{self.seed}:{task.key}", rng=rng)
        return replace(task, preferences=tuple(replace(one, fields={**one.fields, **notes}) for one in found))


def slipped(solution: str, rng: Random) -> str:
    """The same solution with one wrong step, carried on to the answer."""
    steps, answer = solution.strip().split("\n#### ")
    expressions = [step.partition("=")[0] for step in steps.split("; ")]
    right = [int(step.partition("=")[2]) for step in steps.split("; ")]
    at, off = rng.randrange(len(expressions)), rng.choice(SLIPS)
    results = [result + off if place >= at else result for place, result in enumerate(right)]
    for place in range(at + 1, len(expressions)):
        expressions[place] = f"{results[place - 1]}{expressions[place].removeprefix(str(right[place - 1]))}"
    steps = "; ".join(f"{expression}={result}" for expression, result in zip(expressions, results, strict=True))
    return f" {steps}\n#### {int(answer) + off}"
