"""Questions about which box a ball is in, only some of which have the answer in the prompt.

The others can only be guessed, one box after another, as in the smallest experiment of UFO (arXiv:2507.14295): a policy
that never repeats a box finds the ball in at most as many turns as there are boxes. Notes on earlier tries may stand
before a question (`rollouts/reflected`); the demonstration then is a random box that they do not name, or half of the
time the answer, where the prompt has it.
"""

from collections.abc import Sequence
from random import Random
from string import ascii_lowercase
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Guessing(Tasks):
    r"""Prompts with the answer, ``Ball 4711, boxes abcdef, in c.\nBox:``, or without, ``... abcdef, hidden.\nBox:``."""

    size: Annotated[PositiveInt, Field(le=5_000)] = 400
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    options: Annotated[int, Field(ge=2, le=26)] = 6
    """Number of boxes, all equally likely."""
    hidden: Share = 0.5
    """Share of the tasks whose prompt does not have the answer."""
    notes: Annotated[int, Field(ge=0, le=12)] = 0
    """Most notes before a question, ``Not b e.\\n``, each of two wrong boxes; their number is random.
    Then a task has a demonstration."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"guessing:{self.seed}")))

    def describe(self) -> str:
        """Number of boxes, number of tasks and an example."""
        return describe(f"guessing one of {self.options} boxes (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[int, str, bool]:
        return rng.randrange(10_000), rng.choice(ascii_lowercase[: self.options]), rng.random() < self.hidden

    def _task(self, drawn: tuple[int, str, bool]) -> Task:
        number, box, hidden = drawn
        where = "hidden" if hidden else f"in {box}"
        notes, shown = self._noted(number, box, hidden)
        return Task(
            key="",
            prompt=f"{notes}Ball {number}, boxes {ascii_lowercase[: self.options]}, {where}.\nBox:",
            answer=box,
            domain="hidden" if hidden else "told",
            demonstrations=(f" {shown}",) if self.notes else (),
        )

    def _noted(self, number: int, box: str, hidden: bool) -> tuple[str, str]:
        """Notes, and the box of the demonstration."""
        if not self.notes:
            return "", box
        boxes = ascii_lowercase[: self.options]
        rng = Random(f"notes:{self.seed}:{number}:{box}")
        wrong = rng.sample([other for other in boxes if other != box], self.options - 1)
        lines = rng.randint(0, min(self.notes, len(wrong) // 2))
        named = [wrong[2 * i : 2 * i + 2] for i in range(lines)]
        free = rng.choice([other for other in boxes if other not in wrong[: 2 * lines]])
        shown = box if not hidden and rng.random() < 0.5 else free
        return "".join(f"Not {' '.join(pair)}.\n" for pair in named), shown
