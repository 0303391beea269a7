r"""Generated verifications: worked solutions of sums, correct or with a slip, and the verification of each.

The sums are those of `posttrain.components.tasks.arithmetic`. The prompt is the problem, a solution, and ``Check:``.
The demonstration recomputes each step and marks the given one, then marks the result: ``Q: 47+35-8\nA: 47+35=92;
92-8=84\n#### 84\nCheck:`` is followed by `` 47+35=82 -; 92-8=84 +\n#### -``.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.arithmetic import Arithmetic, Digits, Terms
from posttrain.components.tasks.worked_solutions import slipped
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered
from posttrain.grading.verdicts import MARKS
from posttrain.types import Task

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class CheckedSolutions(Tasks):
    """Worked solutions of sums and differences, to be verified."""

    size: PositiveInt = 2000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which sums, and which slips, are drawn."""
    terms: Annotated[tuple[Terms, Terms], Ordered] = (2, 3)
    """Fewest and most numbers in a sum."""
    digits: Annotated[tuple[Digits, Digits], Ordered] = (1, 2)
    """Fewest and most digits of a number."""
    wrong: Share = 0.5
    """Share of the solutions that have a slip."""
    unworked: Share = 0.25
    """Share of the solutions that give the result without steps, correct or not; the verifier works it out, and marks
    one step."""
    prompt: str = "{problem}{solution}\nCheck:"
    """Template of the prompt."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        sums = Arithmetic(size=self.size, seed=self.seed, terms=self.terms, digits=self.digits)
        return [self._verification(task) for task in sums.load()]

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"verifications of worked solutions, {self.wrong:.0%} wrong (seed {self.seed})", self.load())

    def _verification(self, task: Task) -> Task:
        rng = Random(f"checked workings:{self.seed}:{task.key}")
        (solution,) = task.demonstrations
        if rng.random() < self.wrong:
            solution = slipped(solution, rng)
        right = str(task.answer)
        if rng.random() < self.unworked:
            given = solution.rpartition("\n#### ")[2]
            mark = MARKS[given == right]
            worked = task.demonstrations[0].partition("\n")[0]
            solution, text, steps = f" #### {given}", f"{worked} {mark}\n#### {mark}", 1
        else:
            text, steps = verification(solution, right)
        return Task(
            key=f"{task.key}-check",
            prompt=self.prompt.replace("{problem}", str(task.prompt)).replace("{solution}", solution),
            answer=text[-1],
            demonstrations=(text,),
            fields={"steps": steps},
        )


def verification(solution: str, answer: str) -> tuple[str, int]:
    """The verification of a worked solution, and its number of steps."""
    steps, _, result = solution.strip().partition("\n#### ")
    checks = []
    for step in steps.split("; "):
        expression, _, given = step.partition("=")
        right = _result(expression)
        checks.append(f"{expression}={right} {MARKS[str(right) == given]}")
    return f" {'; '.join(checks)}\n#### {MARKS[result == answer]}", len(checks)


def _result(expression: str) -> int:
    """The result of one step, which may begin with a negative number: ``-7+12``."""
    sign = max(expression.rfind("+"), expression.rfind("-"))
    left, right = int(expression[:sign]), int(expression[sign + 1 :])
    return left + right if expression[sign] == "+" else left - right
