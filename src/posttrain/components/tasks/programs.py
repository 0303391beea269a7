"""Generated programming tasks: write a program that reads two numbers and prints the value of an expression.

The prompt is ``Bash: a*3+b``, the demonstration ``read a b; echo $((a*3+b))``, in the language of the prompt. The
reward is `io_tests`, with the fields ``language`` and ``tests``. Expected outputs are computed here, not by a program.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

Name = Literal["bash", "lua", "perl", "python"]

PROGRAMS: Final[Mapping[Name, str]] = {
    "bash": "read a b; echo $(({}))",
    "lua": 'a, b = io.read("n", "n"); print({})',
    "perl": "($a, $b) = split ' ', <STDIN>; print {}",
    "python": "a, b = map(int, input().split()); print({})",
}
"""A correct program of each language, around an expression; Perl's variables have a dollar sign."""


@frozen
class Programs(Tasks):
    """Expressions of two variables and constants; none is repeated before all have been drawn."""

    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    languages: Annotated[tuple[Name, ...], Field(min_length=1)] = ("bash",)
    """Languages of the tasks, all equally likely."""
    terms: Annotated[int, Field(ge=2, le=6)] = 3
    """Most variables and constants in an expression; the fewest are two."""
    tests: PositiveInt = 2
    """Number of test inputs of each task."""
    demonstrate: bool = True
    """Whether tasks have a demonstration."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"programs:{self.seed}")))

    def describe(self) -> str:
        """Languages, number and an example."""
        return describe(f"programs ({', '.join(self.languages)}; seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[Name, str]:
        """A language and an expression."""
        terms = [rng.choice(("a", "b", "a", "b", str(rng.randint(2, 9)))) for _ in range(rng.randint(2, self.terms))]
        return rng.choice(self.languages), terms[0] + "".join(rng.choice("+-*") + term for term in terms[1:])

    def _task(self, drawn: tuple[Name, str]) -> Task:
        language, expression = drawn
        rng = Random(f"programs:{expression}")
        inputs = [(rng.randint(1, 99), rng.randint(1, 99)) for _ in range(self.tests)]
        shown = expression.replace("a", "$a").replace("b", "$b") if language == "perl" else expression
        return Task(
            key="",
            prompt=f"{language.capitalize()}: {expression}\n",
            domain=language,
            demonstrations=(PROGRAMS[language].format(shown),) if self.demonstrate else (),
            fields={
                "language": language,
                "tests": [{"input": f"{a} {b}\n", "output": f"{_result(expression, a, b)}\n"} for a, b in inputs],
            },
        )


def _result(expression: str, a: int, b: int) -> int:
    """Value of the expression, products first."""
    total = 0
    for part in expression.replace("-", "+-").split("+"):
        sign, factors = (-1, part[1:]) if part.startswith("-") else (1, part)
        product = 1
        for factor in factors.split("*"):
            product *= {"a": a, "b": b}[factor] if factor in "ab" else int(factor)
        total += sign * product
    return total
