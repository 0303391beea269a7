r"""Generated verifications: workings of sums, right ones and ones with a slip, with what a verifier should say of them.

The sums are those of `posttrain.components.tasks.arithmetic`. The prompt is the problem, a working, and ``Check:``;
demonstrated is each step worked out again with a mark for the one that was given, and a mark for the result: ``Q:
47+35-8\nA: 47+35=92; 92-8=84\n#### 84\nCheck:`` is followed by `` 47+35=82 -; 92-8=84 +\n#### -``.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.arithmetic import Arithmetic, Digits, Terms
from posttrain.components.tasks.workings import slipped
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered
from posttrain.grading.verdicts import MARKS
from posttrain.types import Task

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class CheckedWorkings(Tasks):
    """Workings of sums and differences, to be verified."""

    size: PositiveInt = 2000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which sums, and which slips, are drawn."""
    terms: Annotated[tuple[Terms, Terms], Ordered] = (2, 3)
    """Fewest and most numbers in a sum."""
    digits: Annotated[tuple[Digits, Digits], Ordered] = (1, 2)
    """Fewest and most digits of a number."""
    wrong: Share = 0.5
    """Share of the workings that have a slip."""
    unworked: Share = 0.25
    """Share of the solutions that give the result at once, right or wrong; the verifier works it out, and marks one
    step."""
    prompt: str = "{problem}{solution}\nCheck:"
    """How a working is shown."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        sums = Arithmetic(size=self.size, seed=self.seed, terms=self.terms, digits=self.digits)
        return [self._verification(task) for task in sums.load()]

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"verifications of workings, {self.wrong:.0%} wrong (seed {self.seed})", self.load())

    def _verification(self, task: Task) -> Task:
        rng = Random(f"checked workings:{self.seed}:{task.key}")
        (working,) = task.demonstrations
        if rng.random() < self.wrong:
            working = slipped(working, rng)
        right = str(task.answer)
        if rng.random() < self.unworked:
            given = working.rpartition("\n#### ")[2]
            mark = MARKS[given == right]
            worked = task.demonstrations[0].partition("\n")[0]
            working, text, steps = f" #### {given}", f"{worked} {mark}\n#### {mark}", 1
        else:
            text, steps = verification(working, right)
        return Task(
            key=f"{task.key}-check",
            prompt=self.prompt.replace("{problem}", str(task.prompt)).replace("{solution}", working),
            answer=text[-1],
            demonstrations=(text,),
            fields={"steps": steps},
        )


def verification(working: str, answer: str) -> tuple[str, int]:
    """What to say of a working, and how many steps it has."""
    steps, _, result = working.strip().partition("\n#### ")
    checks = []
    for step in steps.split("; "):
        asked, _, given = step.partition("=")
        right = _result(asked)
        checks.append(f"{asked}={right} {MARKS[str(right) == given]}")
    return f" {'; '.join(checks)}\n#### {MARKS[result == answer]}", len(checks)


def _result(asked: str) -> int:
    """The result of one step, which may begin with a negative number: ``-7+12``."""
    sign = max(asked.rfind("+"), asked.rfind("-"))
    left, right = int(asked[:sign]), int(asked[sign + 1 :])
    return left + right if asked[sign] == "+" else left - right
