r"""Sums as theorems, derivations as proofs: targets, proofs to imitate, and conjectures to imitate.

``which: targets`` are statements, some short and some long, without a proof:

    Q: 5+8-3\nA:

``which: proofs`` have one, `` 5+8=13; 13-3=10\n#### 10``. ``which: conjectures`` ask for a new theorem that begins with
a lemma, a step of the proof of another one:

    Lemma: 5+8=13\nTheorem: 5+8-3\nProof: 5+8=13; 13-3=10\n#### 10\nNew:      and      5+8+2-7\n

Numbers have one digit. New theorems have as many numbers as the one that is shown, or one more or less.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

Terms = Annotated[int, Field(ge=2, le=32)]
THEOREM: Final = "Theorem: {statement}\nProof:{proof}\nNew:"
LEMMA: Final = "Lemma: {lemma}\n"


@frozen
class Theorems(Tasks):
    """Generated statements, with what `which` adds."""

    size: Annotated[int, Field(ge=1, le=100_000)] = 200
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    which: Literal["targets", "proofs", "conjectures"] = "targets"
    """What a task is."""
    terms: Annotated[tuple[Terms, Terms], Ordered] = (2, 3)
    """Fewest and most numbers of a statement."""
    hard: Annotated[tuple[Terms, Terms], Ordered] = (6, 7)
    """The same for hard statements."""
    hard_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of hard statements."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"theorems:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"sums as theorems, {self.which} (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[str, str, int, int]:
        """A statement, the numbers that a new one adds to its first two, and draws for the lemma."""
        hard = rng.random() < self.hard_share
        statement = _sum(rng, rng.randint(*(self.hard if hard else self.terms)))
        if self.which != "conjectures":
            return statement, "", int(hard), 0
        numbers = len(_numbers(statement)) + rng.choice((-1, 0, 0, 1))
        return statement, _sum(rng, max(numbers, 3))[3:], rng.randrange(4), 0

    def _task(self, drawn: tuple[str, str, int, int]) -> Task:
        statement, more, number, _ = drawn
        proof = derivation(statement)
        count = len(_numbers(statement))
        if self.which == "conjectures":
            first = proof[1:].split("\n")[0].split("; ")[0]
            lemma = "" if number == 0 else LEMMA.replace("{lemma}", first)
            new = first.split("=")[0] + more
            return Task(
                key="",
                prompt=lemma + THEOREM.replace("{statement}", statement).replace("{proof}", proof),
                domain=self.which,
                demonstrations=(f" {new}\n",),
            )
        return Task(
            key="",
            prompt=f"Q: {statement}\nA:",
            domain="hard" if number and self.which == "targets" else f"{count} numbers",
            demonstrations=(proof,) if self.which == "proofs" else (),
            fields={"statement": statement},
        )


def derivation(statement: str) -> str:
    """The proof of a statement, from left to right."""
    numbers = _numbers(statement)
    value, steps = int(numbers[0]), []
    for number in numbers[1:]:
        before, value = value, value + int(number)
        steps.append(f"{before}{number}={value}")
    return f" {'; '.join(steps)}\n#### {value}"


def _sum(rng: Random, numbers: int) -> str:
    return str(rng.randrange(10)) + "".join(f"{rng.choice('+-')}{rng.randrange(10)}" for _ in range(numbers - 1))


def _numbers(statement: str) -> list[str]:
    """The first number, and the others with their signs."""
    return [statement[0], *(statement[i : i + 2] for i in range(1, len(statement), 2))]
