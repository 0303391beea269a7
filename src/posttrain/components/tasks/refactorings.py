r"""Functions with a block that can be extracted into a function of its own.

    def f(a,b):                      def f(a,b):
     c=a*3                            d = g(a, b)
     d=c+b                            return d-2
     return d-2
                                     def g(a, b):
                                      c=a*3
                                      d=c+b
                                      return d

The prompt has the function and ``:``; the answer is the refactored text, as the library rope writes it. A function is a
chain of assignments, `level` + 1 of them, each of the variable before and a parameter or digit. The block is two of
them that follow one another. The field ``source`` has the function, ``function`` its name and ``inputs`` 20 argument
lists, for which both texts have equal results.

Of the demonstrations a share of `copies` repeats the function, and a share of `slips` has another name in the call, so
that it does not resolve.
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

NAME: Final = "f"
NEW: Final = "g"
VARIABLES: Final = "cdeijk"
INPUTS: Final = 20
Drawn = tuple[tuple[str, ...], tuple[str, ...], int]
"""Parameters, the expressions in their order (the last is returned), and where the block begins."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Refactorings(Tasks):
    """Functions to extract a block from; a larger `size` begins with the same ones."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 500
    """Number of functions."""
    level: Annotated[int, Field(ge=1, le=5)] = 1
    """Assignments less one; from 4 on there are three parameters."""
    seed: NonNegativeInt = 0
    """Which functions are drawn."""
    copies: Share = 0.0
    """Share of demonstrations that repeat the function."""
    slips: Share = 0.0
    """Share of demonstrations that call another function than they define."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"refactorings:{self.level}:{self.seed}")))

    def describe(self) -> str:
        """Level, number and an example."""
        return describe(f"functions with an extractable block (level {self.level}, seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Drawn:
        names = tuple("ab" if self.level < 4 else "abh")
        values, before = [], rng.choice(names)
        for variable in VARIABLES[: self.level + 1]:
            values.append(_expression(before, names, rng))
            before = variable
        return names, (*values, _expression(before, names, rng)), rng.randrange(self.level)

    def _task(self, drawn: Drawn) -> Task:
        source, answer = original(drawn), extracted(drawn)
        rng = Random(f"refactorings task:{self.seed}:{source}:{drawn[2]}")
        inputs = [[rng.randint(-9, 9) for _ in drawn[0]] for _ in range(INPUTS)]
        chance = rng.random()
        if chance < self.copies:
            shown = source
        elif chance < self.copies + self.slips:
            shown = answer.replace(f"= {NEW}(", f"= {rng.choice('pqrst')}(")
        else:
            shown = answer
        return Task(
            key="",
            prompt=f"{source}:\n",
            answer=answer,
            domain=f"{len(drawn[1]) - 1} assignments",
            demonstrations=(shown,),
            fields={"source": source, "function": NAME, "inputs": inputs},
        )


def _expression(before: str, names: Sequence[str], rng: Random) -> str:
    """The variable before with a parameter or a digit."""
    other = rng.choice((*names, str(rng.randint(2, 9))))
    return f"{before}{rng.choice('+-*')}{other}"


def original(drawn: Drawn) -> str:
    """The function."""
    names, values, _ = drawn
    lines = [f" {variable}={value}" for variable, value in zip(VARIABLES, values[:-1], strict=False)]
    return "\n".join([f"def {NAME}({','.join(names)}):", *lines, f" return {values[-1]}", ""])


def extracted(drawn: Drawn) -> str:
    """The function after the block was extracted, and the new one."""
    names, values, start = drawn
    lines = [f" {variable}={value}" for variable, value in zip(VARIABLES, values[:-1], strict=False)]
    block, last = lines[start : start + 2], VARIABLES[start + 1]
    known = (*names, *VARIABLES[:start])
    arguments = ", ".join(dict.fromkeys(name for value in values[start : start + 2] for name in value if name in known))
    body = [*lines[:start], f" {last} = {NEW}({arguments})", *lines[start + 2 :], f" return {values[-1]}"]
    new = ["", f"def {NEW}({arguments}):", *block, f" return {last}", ""]
    return "\n".join([f"def {NAME}({','.join(names)}):", *body, *new])
