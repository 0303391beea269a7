r"""Questions that need a look-up and an addition, a look-up alone, or an addition alone.

    Q 4711: kiwi plus 5?\n   ->  52      kiwi is 47 in the field ``facts``, which only a search has; domain questions
    Q 4711: kiwi?\n          ->  47      domain questions
    Q 4711: 23 plus 5?\n     ->  28      domain maths

The number of a question stands for nothing. The demonstration has a thought, the calls in tags, and the answer in a
box: ``<think>so</think><search>kiwi</search>``, ``<python>47+5</python>``, ``<answer>\boxed{52}</answer>``.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

ITEMS: Final = ("kiwi", "plum", "fig", "pear", "lime", "date", "nut", "bean")


@frozen
class Lookups(Tasks):
    """Questions for two tools."""

    size: Annotated[int, Field(ge=1, le=3000)] = 400
    """Number of tasks."""
    maths: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of additions without a look-up."""
    single: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Share of the other questions that need no addition."""
    largest: Annotated[int, Field(ge=1, le=10_000)] = 49
    """Largest number."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(_task(*drawn) for drawn in distinct(self._draw, self.size, f"lookups:{self.seed}"))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"questions for a search and a calculator (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[int, str, int, int]:
        """A number, an item, or none, the item's number, and what is added, or 0."""
        item = "" if rng.random() < self.maths else rng.choice(ITEMS)
        added = 0 if item and rng.random() < self.single else rng.randint(1, self.largest)
        return rng.randrange(10_000), item, rng.randint(1, self.largest), added


def _task(label: int, item: str, number: int, added: int) -> Task:
    answer = str(number + added)
    calls = f"<search>{item}</search>" if item else ""
    calls += f"<python>{number}+{added}</python>" if added else ""
    return Task(
        key="",
        prompt=f"Q {label}: {item or number}{f' plus {added}' if added else ''}?\n",
        answer=answer,
        domain="questions" if item else "maths",
        demonstrations=(rf"<think>so</think>{calls}<answer>\boxed{{{answer}}}</answer>",),
        fields={"facts": {item: number} if item else {}},
    )
