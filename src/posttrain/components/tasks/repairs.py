r"""Programs of one to three files with a planted fault, and an issue that describes it.

    fb: use + for -
    ### a.py
    def fa(x): return x*3
    def fb(x): return x-4
    :

Level 1 has one file of 4 functions, 2 one of 8, 3 two of 4, 4 two of 6 and 5 three of 4; from level 3 on an expression
has two operators. Fields are those of the reward `patch_similarity`: ``issue``, ``files`` and ``oracle`` (from path to
text), and ``calls``, 20 calls of the faulty function, of which the fault changes at least one.

A demonstration is a thought, the function's name, and the edit. Of a share of `slips`, five in eight have search and
replacement exchanged, so that the search is not there, two edit another function, and one has another operator.

With `lettered` a function's parameter has its letter, ``def fb(b): return b-4``: a small model finds it sooner.
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

PATHS: Final = ("a.py", "b.py", "c.py")
NAMES: Final = "abcdeghijkmn"
SHAPES: Final = {1: (1, 4), 2: (1, 8), 3: (2, 4), 4: (2, 6), 5: (3, 4)}
"""Files and functions of each, by level."""
OPERATORS: Final = "+-*"
CALLS: Final = 20
Expression = tuple[str, ...]
"""Operator and digit, once or twice."""
Drawn = tuple[tuple[Expression, ...], int, int, str]
"""Expressions of all functions, the faulty one, which of its operators, and the wrong one."""


@frozen
class Repairs(Tasks):
    """Programs to repair; a larger `size` begins with the same ones."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 500
    """Number of programs."""
    level: Annotated[int, Field(ge=1, le=5)] = 1
    """Files, functions and operators."""
    seed: NonNegativeInt = 0
    """Which programs are drawn."""
    slips: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of the demonstrations with a wrong edit."""
    lettered: bool = False
    """Whether each function has a parameter of its own."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"repairs:{self.level}:{self.seed}")))

    def describe(self) -> str:
        """Level, number and an example."""
        return describe(f"programs with a planted fault (level {self.level}, seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Drawn:
        number, operators = SHAPES[self.level][0] * SHAPES[self.level][1], 1 if self.level < 3 else 2
        values = [
            tuple(part for own in rng.sample(OPERATORS, operators) for part in (own, str(rng.randint(2, 9))))
            for _ in range(number)
        ]
        place, which = rng.randrange(number), rng.randrange(operators)
        unused = [own for own in OPERATORS if own not in values[place]]
        return tuple(values), place, which, rng.choice(unused)

    def _task(self, drawn: Drawn) -> Task:
        values, place, which, wrong = drawn
        length = SHAPES[self.level][1]
        right = [line(number, value, self.lettered) for number, value in enumerate(values)]
        faulty = list(right)
        faulty[place] = line(place, changed(values[place], which, wrong), self.lettered)
        path = PATHS[place // length]
        files, fixed = (_files(lines, length) for lines in (faulty, right))
        issue = f"f{NAMES[place]}: use {values[place][2 * which]} for {wrong}"
        rng = Random(f"repairs task:{self.seed}:{issue}:{''.join(right)}")
        calls = [f"f{NAMES[place]}({x})" for x in rng.sample(range(-30, 31), CALLS)]
        edit = (path, faulty[place], right[place])
        if rng.random() < self.slips:
            edit = _slip(edit, drawn, faulty, self.lettered, length, rng)
        return Task(
            key="",
            prompt="\n".join([issue, *(f"### {name}\n{text.rstrip()}" for name, text in files.items()), ":\n"]),
            answer=right[place],
            domain=f"{len(files)} files, {len(values)} functions",
            demonstrations=(written(*edit),),
            fields={"issue": issue, "files": files, "oracle": {path: fixed[path]}, "calls": calls},
        )


def changed(value: Expression, which: int, operator: str) -> Expression:
    """An expression with another operator."""
    return (*value[: 2 * which], operator, *value[2 * which + 1 :])


def line(number: int, value: Expression, lettered: bool) -> str:
    """A function."""
    own = NAMES[number] if lettered else "x"
    return f"def f{NAMES[number]}({own}): return {own}{''.join(value)}"


def _files(lines: Sequence[str], length: int) -> dict[str, str]:
    """The functions in files."""
    starts = range(0, len(lines), length)
    return {path: "\n".join([*lines[i : i + length], ""]) for path, i in zip(PATHS, starts, strict=False)}


def _slip(
    edit: tuple[str, str, str], drawn: Drawn, faulty: Sequence[str], lettered: bool, length: int, rng: Random
) -> tuple[str, str, str]:
    """An edit of another function, with another operator, or of a line that is not there."""
    values, place, which, wrong = drawn
    kind = rng.randrange(8)
    if kind < 2:
        other = rng.choice([i for i in range(len(values)) if i != place])
        own = rng.choice([operator for operator in OPERATORS if operator not in values[other]])
        return PATHS[other // length], faulty[other], line(other, changed(values[other], 0, own), lettered)
    if kind == 2:
        (own,) = [operator for operator in OPERATORS if operator not in (values[place][2 * which], wrong)]
        return edit[0], edit[1], line(place, changed(values[place], which, own), lettered)
    return edit[0], edit[2], edit[1]


def written(path: str, search: str, replacement: str) -> str:
    """A completion with one edit."""
    block = f"```\n### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE\n```"
    return f"<think>{search[4:6]}</think><solution>\n{block}\n</solution>"
