r"""Generated sums with three ranked solutions, and a pair of them with critiques.

Rank 2 is a worked solution, `` 47+35=82; 82-8=74\n#### 74``; rank 1 has a slip in one step, which is carried on; rank 0
has a slip and no steps, `` #### 75``. They are the rated texts of a task. A preference is of two of them, drawn, with
the fields ``chosen_critique`` and ``rejected_critique``: `` right`` for rank 2, `` step 2: 83`` with the first
incorrect result for rank 1, and `` no steps`` for rank 0. `swapped` is the share of tasks in which the ranks of two
neighbours are exchanged, as people err; critiques are of the texts, whatever their rank.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.arithmetic import Arithmetic, Terms
from posttrain.components.tasks.worked_solutions import SLIPS, slipped
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered
from posttrain.types import Preference, Rated, Task


@frozen
class RankedSolutions(Tasks):
    """Sums and differences with three ranked solutions each."""

    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks, and which slips, are drawn."""
    terms: Annotated[tuple[Terms, Terms], Ordered] = (3, 4)
    """Fewest and most numbers in a task."""
    swapped: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of the tasks with two neighbouring ranks exchanged."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return [self._ranked(task) for task in Arithmetic(size=self.size, seed=self.seed, terms=self.terms).load()]

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"sums with three ranked solutions (seed {self.seed})", self.load())

    def _ranked(self, task: Task) -> Task:
        """The task with rated solutions and a pair of them."""
        rng = Random(f"ranked_solutions:{self.seed}:{task.key}")
        (right,) = task.demonstrations
        wrong = slipped(right, rng)
        texts = [f" #### {int(task.answer or 0) + rng.choice(SLIPS)}", wrong, right]
        critiques = [" no steps", f" {_first_slip(right, wrong)}", " right"]
        ranks = [0.0, 1.0, 2.0]
        if rng.random() < self.swapped:
            at = rng.randrange(2)
            ranks[at], ranks[at + 1] = ranks[at + 1], ranks[at]
        worse, better = sorted(rng.sample(range(3), 2), key=lambda i: ranks[i])
        fields = {"chosen_critique": critiques[better], "rejected_critique": critiques[worse]}
        return replace(
            task,
            demonstrations=(),
            rated=tuple(Rated(completion=text, rating=rank) for text, rank in zip(texts, ranks, strict=True)),
            preferences=(Preference(chosen=texts[better], rejected=texts[worse], fields=fields),),
        )


def _first_slip(right: str, wrong: str) -> str:
    """The number of the first step that differs, and its result."""
    steps = zip(right.split("\n")[0].split(";"), wrong.split("\n")[0].split(";"), strict=True)
    place, result = next((i, b.partition("=")[2]) for i, (a, b) in enumerate(steps) if a != b)
    return f"step {place + 1}: {result}"
