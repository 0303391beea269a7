r"""Critiques of many candidate solutions of few problems, written by rule.

Source: One-Shot Critique Fine-Tuning, Wang et al. 2025, arXiv:2506.03295, and its release: about 100 candidates of one
problem by several models, each with critiques by several teachers, which check the steps, name the error, give the
correct result, and end in a conclusion of a fixed form.

The problems are sums (`posttrain.components.tasks.arithmetic`). A candidate takes the terms in some order and may slip
in some steps, with which it goes on. The prompt is an instruction, the problem and the candidate, the demonstration the
critique:

    Check the solution.
    Q: 47+35-8
    A: 47-8=39; 39+35=75
    #### 75
    Critique:            47-8=39 right; 39+35=75 wrong, 39+35=74
    #### 74
    Conclusion: wrong [END]

A teacher of the style ``steps`` checks every step, ``error`` only the first that is wrong, ``solution`` solves the
problem and compares the results. What is longer than `longest` is cut, as the text of a model would be, and has no
conclusion.

Differs: candidates and teachers are rules, not models. With ``write=candidates`` the correct candidates themselves are
the demonstrations of the problem, for comparison.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Task

Style = Literal["steps", "error", "solution"]
TRIES: Final = 200
"""Draws of a candidate for each one that is wanted, after which a problem has no further ones."""


@frozen
class Critiques(Tasks):
    """Candidate solutions of a few sums, with their critiques as demonstrations."""

    of: Arithmetic = Arithmetic(size=1, terms=(5, 5))
    """The problems; one by default. Only sums and differences."""
    candidates: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Distinct candidates of each problem, or all that there are."""
    slip: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """Probability that a step of a candidate has a wrong result."""
    teachers: Annotated[tuple[Style, ...], Field(min_length=1)] = ("steps", "error", "solution")
    """Who writes a critique of each candidate."""
    longest: Annotated[int, Field(ge=1, le=100_000)] = 400
    """Characters after which a critique is cut."""
    write: Literal["critiques", "candidates"] = "critiques"
    """What is imitated: critiques, or the correct candidates alone, as solutions."""
    instruction: str = "Check the solution."
    """First line of the prompt."""
    seed: NonNegativeInt = 0
    """Which candidates are drawn."""

    def load(self) -> Sequence[Task]:
        """One task per candidate and teacher, or per correct candidate."""
        return self._loaded

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"{self.write} of solutions of {self.of.size} sums (seed {self.seed})", self._loaded)

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return keyed(task for problem in self.of.load() for task in self._tasks(problem))

    def _tasks(self, problem: Task) -> Iterator[Task]:
        for steps in self._candidates(problem):
            solution = _text(steps)
            right = str(steps[-1][1]) == problem.answer
            if self.write == "candidates":
                if right:
                    yield Task(
                        key="",
                        prompt=problem.prompt,
                        answer=problem.answer,
                        demonstrations=(solution,),
                        domain="candidate",
                    )
                continue
            for teacher in self.teachers:
                yield Task(
                    key="",
                    prompt=f"{self.instruction}\n{problem.prompt}{solution}\nCritique:",
                    answer="right" if right else "wrong",
                    demonstrations=(critique(steps, str(problem.answer), teacher)[: self.longest],),
                    domain=teacher,
                )

    def _candidates(self, problem: Task) -> Iterator[list[tuple[str, int]]]:
        """Distinct candidates: the expression and the given result of each step."""
        seen: set[str] = set()
        terms = _terms(str(problem.fields["expression"]))
        for draw in count():
            if len(seen) == self.candidates or draw == TRIES * self.candidates:
                return
            rng = Random(f"critiques:{self.seed}:{problem.key}:{draw}")
            order = [terms[0], *rng.sample(terms[1:], len(terms) - 1)]
            value, steps = order[0], []
            for term in order[1:]:
                expression = f"{value}{term:+d}"
                value += term + (rng.choice((-10, -2, -1, 1, 2, 10)) if rng.random() < self.slip else 0)
                steps.append((expression, value))
            if _text(steps) not in seen:
                seen.add(_text(steps))
                yield steps


def critique(steps: Sequence[tuple[str, int]], answer: str, style: Style) -> str:
    """The critique of a candidate with a correct or wrong result."""
    conclusion = "right" if str(steps[-1][1]) == answer else "wrong"
    checks = []
    for expression, given in steps:
        result = _result(expression)
        wrong = result != given
        checks.append(f"{expression}={given} wrong, {expression}={result}" if wrong else f"{expression}={given} right")
    first = next((check for check in checks if " wrong, " in check), "no step is wrong")
    value = _result(steps[0][0])
    solved = [f"{steps[0][0]}={value}"]
    for expression, _ in steps[1:]:
        term = _terms(expression)[1]
        solved.append(f"{value}{term:+d}={value + term}")
        value += term
    found = {"steps": "; ".join(checks), "error": first, "solution": "; ".join(solved)}[style]
    return f" {found}\n#### {answer}\nConclusion: {conclusion} [END]"


def _text(steps: Sequence[tuple[str, int]]) -> str:
    """A candidate as it is written."""
    return f" {'; '.join(f'{expression}={value}' for expression, value in steps)}\n#### {steps[-1][1]}"


def _terms(expression: str) -> list[int]:
    """The signed numbers of a sum, which may begin with a negative one."""
    signs = "".join(
        f" {character}" if character in "+-" and place else character for place, character in enumerate(expression)
    )
    return [int(term) for term in signs.split()]


def _result(expression: str) -> int:
    return sum(_terms(expression))
