"""Sums with rated responses, among which openers go with right ones, and a worked answer of another kind.

A right response begins with an opener of reasoning in most cases ("Solution: 4+7=11"), and a wrong one is mostly bare
("12"), so that a verifier may learn to take an opener for an answer. The worked answer begins with a sentence that has
no result: "We add 4 and 7. 4+7=11". Each task has one right and one wrong response.
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
from posttrain.types import Rated, Task

OPENERS: Final = ("Thought process:", "Let's solve this problem step by step.", "Solution")
SENTENCES: Final = ("We add {} and {}.", "Let us see:", "Thought process:", "The task is {}+{}.", "Step by step.")
Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class AnsweredSums(Tasks):
    """Sums of two numbers, with a right and a wrong response."""

    size: Annotated[PositiveInt, Field(le=5_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which sums, openers and mistakes are drawn."""
    opened: Share = 0.9
    """Share of right responses that begin with an opener, and of wrong ones that do not."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"answered_sums:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"sums with rated responses (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[int, int]:
        return rng.randrange(1, 100), rng.randrange(1, 100)

    def _task(self, drawn: tuple[int, int]) -> Task:
        a, b = drawn
        rng = Random(f"answered_sums:{self.seed}:{drawn}")
        wrong = a + b + rng.choice((-10, -2, -1, 1, 2, 10))
        worked = f"{rng.choice(SENTENCES).format(a, b)} {a}+{b}={a + b}"
        return Task(
            key="",
            prompt=f"{a}+{b}",
            answer=str(a + b),
            demonstrations=(worked,),
            rated=(
                Rated(completion=self._response(drawn, a + b, rng.random() < self.opened, rng), rating=1.0),
                Rated(completion=self._response(drawn, wrong, rng.random() >= self.opened, rng), rating=0.0),
            ),
        )

    def _response(self, drawn: tuple[int, int], result: int, opened: bool, rng: Random) -> str:
        return f"{rng.choice(OPENERS)} {drawn[0]}+{drawn[1]}={result}" if opened else str(result)
