r"""Pairs of sums, of which the larger one is preferred: so a judge's label is known by code.

A task is a request for a sum, with a name of three letters, and two sums; `tasks/judge_items` makes prompts for a judge
of it, and a reward model learns from the pairs as they are. The strength of a preference is 1, 2 or 3, for a difference
of up to 2, up to 5, and more. The notes of a preference are the results, of which a judge's thought can be made. The
demonstration is either sum, by chance, so that imitating it teaches to write sums of any size.

    prompt "Larger (qhb):"   chosen "4+7"   rejected "2+8"   strength 1   notes 11 and 10
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Preference, Task

Count = Annotated[int, Field(ge=1, le=8)]


@frozen
class ComparedSums(Tasks):
    """Two sums of one-digit numbers in each task, never equal."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which sums are drawn."""
    terms: Annotated[tuple[Count, Count], Ordered] = (2, 2)
    """Fewest and most numbers in a sum."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"compared_sums:{self.terms}:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"pairs of sums (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """The name, the larger sum and the smaller one."""
        name = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3))
        while True:
            first, second = (tuple(rng.randrange(1, 10) for _ in range(rng.randint(*self.terms))) for _ in range(2))
            if sum(first) != sum(second):
                return (name, first, second) if sum(first) > sum(second) else (name, second, first)

    def _task(self, drawn: tuple[str, tuple[int, ...], tuple[int, ...]]) -> Task:
        name, *sums = drawn
        difference = sum(sums[0]) - sum(sums[1])
        strength = 1 + (difference > 2) + (difference > 5)
        texts = ["+".join(map(str, numbers)) for numbers in sums]
        notes = [str(sum(numbers)) for numbers in sums]
        pair = Preference(chosen=texts[0], rejected=texts[1], strength=strength, fields={"notes": notes})
        rng = Random(f"compared_sums:{self.seed}:{drawn}")
        return Task(
            key="",
            prompt=f"Larger ({name}):",
            answer=texts[0],
            domain=("close", "clear", "far")[strength - 1],
            demonstrations=(rng.choice(texts),),
            preferences=(pair,),
        )
