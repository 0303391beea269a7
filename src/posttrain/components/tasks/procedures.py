"""Numbers to which one of four procedures is applied; which one is right depends on a word of the prompt.

``k2 17`` is answered by a number. Each procedure adds a number of its own, modulo `numbers`. A hint names a procedure:
with ``Hint: h3`` the prompt can be answered without knowledge of the word. The forms are those of the rollout
`abstracted`. Demonstrations teach to apply procedures, and not which one is right: for a bare prompt the procedure is
random, after a hint it is mostly that of the hint, whose name is random, and requested hints are random.

Source: the smallest experiment of RLAD, arXiv:2510.02263; the tasks are ours.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Task

ADDED: Final = (7, 19, 23, 36)
"""What each procedure adds."""
KINDS: Final = 4


def right_procedure(kind: int) -> int:
    """The right procedure for a word."""
    return (3 * kind + 1) % KINDS


def applied(procedure: int, number: int, numbers: int) -> int:
    """The result of a procedure."""
    return (number + ADDED[procedure]) % numbers


@frozen
class Procedures(Tasks):
    """Prompts of one form."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 400
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    form: Literal["bare", "hinted", "hint"] = "bare"
    """The problem, the problem with a random hint, or a request for a hint."""
    follows: Annotated[float, Field(ge=0.0, le=1.0)] = 0.6
    """Share of the demonstrations with a hint that follow it; the others take a random procedure."""
    numbers: Annotated[int, Field(ge=2, le=100)] = 60
    """Numbers from 0 on."""

    def load(self) -> Sequence[Task]:
        """The tasks; no problem twice before all are there."""
        rng = Random(f"procedures:{self.seed}:{self.form}")
        problems = [(kind, number) for kind in range(KINDS) for number in range(self.numbers)]
        rng.shuffle(problems)
        return keyed(self._task(*problems[i % len(problems)], rng) for i in range(self.size))

    def describe(self) -> str:
        """Number of tasks and an example."""
        return describe(f"one of {KINDS} procedures, {self.form} (seed {self.seed})", self.load())

    def _task(self, kind: int, number: int, rng: Random) -> Task:
        hint, other = rng.randrange(KINDS), rng.randrange(KINDS)
        follows = self.form == "hinted" and rng.random() < self.follows
        shown = str(applied(hint if follows else other, number, self.numbers))
        ends = {"bare": "", "hinted": f"\nHint: h{hint}\nAnswer:", "hint": "\nHint:"}
        return Task(
            key="",
            prompt=f"k{kind} {number}{ends[self.form]}",
            answer=str(applied(right_procedure(kind), number, self.numbers)),
            demonstrations=(f" h{hint}" if self.form == "hint" else f" {shown}",),
            domain=f"k{kind}",
        )
