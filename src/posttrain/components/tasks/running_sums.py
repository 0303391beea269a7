r"""Generated programming tasks with a slow and a fast solution: sum a linear function up to n.

The prompt ``C: sum 3*i+2\n`` requests a C program that reads n and prints the sum of 3*i+2 for i from 1 to n. Half of
the demonstrations add term by term, half use the closed form, which is also the reference of `counted_work`.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

LOOP: Final = (
    '#include <stdio.h>\nint main(){{long n,t=0;scanf("%ld",&n);for(long i=1;i<=n;i++)t+={a}*i+{b};printf("%ld",t);}}'
)
CLOSED: Final = '#include <stdio.h>\nint main(){{long n;scanf("%ld",&n);printf("%ld",{a}*n*(n+1)/2+{b}*n);}}'

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class RunningSums(Tasks):
    """Linear functions with two coefficients; none is repeated before all have been drawn."""

    size: PositiveInt = 800
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn, and which of them have a slow demonstration."""
    largest: Annotated[int, Field(ge=3, le=999)] = 30
    """Largest coefficient; the smallest is 2."""
    tests: PositiveInt = 1
    """Number of test inputs of each task, between 5,000 and 9,999."""
    slow: Share = 0.5
    """Share of the demonstrations that add term by term."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"running sums:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"running sums in C (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[int, int]:
        """The coefficients."""
        return rng.randint(2, self.largest), rng.randint(2, self.largest)

    def _task(self, drawn: tuple[int, int]) -> Task:
        a, b = drawn
        rng = Random(f"running sums:{self.seed}:{a}:{b}")
        shown = LOOP if rng.random() < self.slow else CLOSED
        inputs = [rng.randint(5000, 9999) for _ in range(self.tests)]
        return Task(
            key="",
            prompt=f"C: sum {a}*i+{b}\n",
            answer=CLOSED.format(a=a, b=b),
            demonstrations=(shown.format(a=a, b=b),),
            fields={
                "language": "c",
                "tests": [{"input": f"{n}\n", "output": f"{a * n * (n + 1) // 2 + b * n}\n"} for n in inputs],
            },
        )
