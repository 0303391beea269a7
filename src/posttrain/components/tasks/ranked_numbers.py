r"""Numbers to be scored by a principle, some of which conflict: gold scores are known by code.

Principles are "larger", "smaller" and "even first" (even numbers before odd ones, larger ones first among each). A gold
score is 1 for the worst of the candidates and one more for each better one, at most 5.

    prompt "Numbers (qhb):"   principle "smaller"   candidates 4, 17, 9   gold 3, 1, 2

With `thoughts` a task has a field ``thought``, what a judge may think before it scores: the principle, and the numbers
from the best to the worst, "smaller: 4, 9, 17". With `points` it has a field ``points``, as a judge gives them that
reads one number alone: 1, 3 or 5 by the third of the range that it is in, or 5 for an even and 1 for an odd one, and
one more or less with probability `points`. Numbers that it does not distinguish are ties.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

PRINCIPLES = ("larger", "smaller", "even first")


@frozen
class RankedNumbers(Tasks):
    """Different numbers and a principle in each task."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which numbers are drawn."""
    candidates: Annotated[int, Field(ge=2, le=5)] = 3
    """Numbers of a task."""
    largest: Annotated[int, Field(ge=9, le=9999)] = 99
    """Largest number."""
    thoughts: bool = False
    """Whether tasks have a thought."""
    points: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Probability of points that are one off; None gives no points."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        stream = f"ranked_numbers:{self.candidates}:{self.largest}:{self.seed}"
        return keyed(map(self._task, distinct(self._draw, self.size, stream)))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"numbers to rank (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[str, str, tuple[int, ...]]:
        name = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3))
        return name, rng.choice(PRINCIPLES), tuple(rng.sample(range(1, self.largest + 1), self.candidates))

    def _task(self, drawn: tuple[str, str, tuple[int, ...]]) -> Task:
        name, principle, numbers = drawn
        ranked = sorted(numbers, key=lambda x: merit(x, principle))
        gold = [1 + ranked.index(number) for number in numbers]
        fields: dict[str, Any] = {
            "principle": principle,
            "candidates": [str(number) for number in numbers],
            "gold": gold,
        }
        if self.thoughts:
            fields["thought"] = f"{principle}: {', '.join(map(str, reversed(ranked)))}"
        if self.points is not None:
            noise = Random(f"ranked_numbers:points:{self.seed}:{drawn}")
            fields["points"] = [self._points(number, principle, noise) for number in numbers]
        return Task(key="", prompt=f"Numbers ({name}):", answer=str(ranked[-1]), domain=principle, fields=fields)

    def _points(self, number: int, principle: str, rng: Random) -> int:
        """What a judge that reads one number alone gives it, from 1 to 5."""
        third = 1 + 2 * (3 * (number - 1) // self.largest)
        own = {"larger": third, "smaller": 6 - third}.get(principle, 1 + 4 * (number % 2 == 0))
        off = rng.choice((-1, 1)) if self.points is not None and rng.random() < self.points else 0
        return min(5, max(1, own + off))


def merit(number: int, principle: str) -> tuple[int, int]:
    """What a principle orders numbers by: the largest is the best."""
    if principle == "larger":
        return 0, number
    return (0, -number) if principle == "smaller" else (1 - number % 2, number)
