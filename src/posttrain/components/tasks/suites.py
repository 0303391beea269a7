"""Generated tasks of writing tests: find the faults in copies of a small function that are known to be wrong.

The prompt describes a function of a number or of a list of numbers. The reward is `suite`, with the fields ``function``
(its name), ``correct`` (three independent sources), ``wrong`` (copies with one fault each) and ``domain`` (least and
largest number, longest list or 0). The demonstration has a test for every copy. There are ten functions with six
constants each; beyond these, and from `level` 2 on, steps change the argument first: ``add 3 to each number``. A copy
whose results are right on all of `inputs` drawn inputs counts as equal and is left out, and the field ``equal`` has
their number.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.faulty_functions import NAME, Made, compiled
from posttrain.datasets.function_steps import functions
from posttrain.datasets.keys import keyed
from posttrain.types import Task


@frozen
class Suites(Tasks):
    """Functions with faulty copies that tests should kill."""

    size: Annotated[int, Field(ge=1, le=10_000)] = 30
    """Number of functions."""
    level: Annotated[int, Field(ge=1, le=5)] = 1
    """Difficulty: one less is the number of steps before a function."""
    faults: Annotated[int, Field(ge=1, le=40)] = 10
    """Most faulty copies of a function."""
    inputs: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Inputs on which a copy must differ once."""
    seed: NonNegativeInt = 0
    """Which faults are drawn."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order of the functions."""
        return keyed(map(_task, functions(self.size, self.faults, self.inputs, self.seed, self.level)))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"test suites ({self.faults} faults, seed {self.seed})", self.load())


def _task(made: Made) -> Task:
    kind = "a list of whole numbers" if made.domain[2] else "a whole number"
    inputs = {repr(x): x for x in made.killing}
    right = compiled(made.right[0])
    ask = f"Write tests, each in a line: assert {NAME}(...) == ..."
    tests = [f"assert {NAME}({text}) == {right(list(x) if isinstance(x, list) else x)!r}" for text, x in inputs.items()]
    return Task(
        key="",
        prompt=f"{NAME}(x) takes {kind} and returns {made.text}.\n{ask}\n",
        demonstrations=("\n".join(tests) + "\n",),
        fields={
            "function": NAME,
            "correct": list(made.right),
            "wrong": list(made.wrong),
            "domain": list(made.domain),
            "name": made.name,
            "equal": made.equal,
        },
    )
