r"""Generated puzzles of which all solutions are asked for: alphametics, products of digits, and Sudoku of six rows.

``Solve A+A=BC\n`` has the solutions ``5+5=10``, ``6+6=12``, ... (different letters, different digits, no leading zero);
``Solve A*B+7=31`` has digits from 1 to 9 with A < B, ``3*8+7=31`` and ``4*6+7=31``;
``Solve 12.4../...`` is a Sudoku of six rows with boxes of two rows and three columns, whose solution is written like
the puzzle. The field ``solutions`` lists all of them, found by trying; a demonstration tries the digits of the first
letter (of a Sudoku, the digits of its first empty cell) in a tree, then lists the solutions: ``<tot>A=1 no A=5 5+5=10
...</tot>\n#### 5+5=10; 6+6=12``. The domain is the kind.

Source: the puzzles of ToTRL, arXiv:2505.12717; which instances it has is not published.
"""

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.datasets.puzzles import CELLS, SIDE, alphametic, product, sudoku
from posttrain.types import Task

Name = Literal["alphametic", "product", "sudoku"]
Number = Annotated[int, Field(ge=1, le=20)]
LETTERS: Final = "ABCD"


@frozen
class Puzzles(Tasks):
    """Puzzles with few solutions."""

    names: Annotated[tuple[Name, ...], Field(min_length=1)] = ("alphametic",)
    """Which kinds; task i is of kind i modulo their number."""
    size: Annotated[PositiveInt, Field(le=5000)] = 200
    """Number of puzzles; of alphametics there are some hundreds, then they repeat."""
    seed: NonNegativeInt = 0
    """Which are drawn."""
    solutions: Annotated[tuple[Number, Number], Ordered] = (1, 3)
    """Fewest and most solutions."""
    blanks: Annotated[int, Field(ge=1, le=CELLS)] = 12
    """Empty cells of a Sudoku."""
    suffix: str = ""
    """Text after the prompt, such as an empty block of thoughts."""
    first: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of the demonstrations that stop at the first solution, which is then the only one that they list."""

    def load(self) -> Sequence[Task]:
        """The puzzles, in the order in which they are drawn."""
        label = f"puzzles:{self.solutions}:{self.blanks}:{self.seed}"
        count = len(self.names)
        draws = {"alphametic": self._alphametic, "product": self._product, "sudoku": self._sudoku}
        own = [distinct(draws[name], -(-self.size // count), label + name) for name in self.names]
        stops = Random(f"{label}:first")
        return keyed(
            self._task(self.names[i % count], *own[i % count][i // count], stops=stops.random() < self.first)
            for i in range(self.size)
        )

    def describe(self) -> str:
        """Kinds, number and an example."""
        few, many = self.solutions
        return describe(f"puzzles ({', '.join(self.names)}; {few} to {many} solutions; seed {self.seed})", self.load())

    def _alphametic(self, rng: Random) -> tuple[str, tuple[str, ...]]:
        """A puzzle of words of one or two letters, and its solutions."""
        while True:
            words = ["".join(rng.choices(LETTERS, k=rng.randint(1, most))) for most in (2, 2, 3)]
            names = dict.fromkeys("".join(words))
            order = str.maketrans(dict(zip(names, LETTERS, strict=False)))
            puzzle = "{}+{}={}".format(*(word.translate(order) for word in words))
            found = _solved(puzzle)
            if self.solutions[0] <= len(found) <= self.solutions[1]:
                return puzzle, found

    def _product(self, rng: Random) -> tuple[str, tuple[str, ...]]:
        """A product of two digits with a number added, and its solutions."""
        while True:
            added = rng.randint(1, 99)
            result = added + rng.randint(1, 9) * rng.randint(1, 9)
            found = tuple(product(added, result))
            if self.solutions[0] <= len(found) <= self.solutions[1]:
                return f"A*B+{added}={result}", found

    def _sudoku(self, rng: Random) -> tuple[str, tuple[str, ...]]:
        """A grid with empty cells, and its completions."""
        while True:
            digits = rng.sample("123456", SIDE)
            full = next(iter(sudoku("".join(digits) + "." * (CELLS - SIDE), 1 + rng.randrange(50))[-1:]))
            empty = set(rng.sample(range(CELLS), self.blanks))
            grid = "".join("." if place in empty else cell for place, cell in enumerate(full))
            found = sudoku(grid, self.solutions[1] + 1)
            if self.solutions[0] <= len(found) <= self.solutions[1]:
                return _rows(grid), tuple(map(_rows, found))

    def _task(self, name: str, puzzle: str, solutions: tuple[str, ...], *, stops: bool) -> Task:
        shown = solutions[:1] if stops else solutions
        return Task(
            key="",
            prompt=f"Solve {puzzle}\n{self.suffix}",
            answer="; ".join(solutions),
            domain=name,
            demonstrations=(f"<tot>{_tree(puzzle, shown, whole=not stops)}</tot>\n#### {'; '.join(shown)}",),
            fields={"solutions": list(solutions)},
        )


@lru_cache(maxsize=8192)
def _solved(puzzle: str) -> tuple[str, ...]:
    """The solutions of an alphametic: there are few of them, which are drawn again and again."""
    return tuple(alphametic(puzzle))


def _rows(grid: str) -> str:
    return "/".join(grid[start : start + SIDE] for start in range(0, CELLS, SIDE))


def _tree(puzzle: str, solutions: Sequence[str], *, whole: bool = True) -> str:
    """Every value of the first unknown, each with its solutions or ``no``; of a product what it is, and its factors.

    A tree that is not `whole` ends at its only solution.
    """
    if "*" in puzzle:
        added, result = puzzle.partition("+")[2].split("=")
        factors = " ".join(one.partition("+")[0] for one in solutions)
        return f"{result}-{added}={int(result) - int(added)} {factors}"
    letter = puzzle[0] if puzzle[0].isalpha() else "."
    place = puzzle.index(letter)
    values = "0123456789" if letter != "." else "123456"
    if not whole:
        values = values[: values.index(solutions[0][place]) + 1]
    found = {value: [one for one in solutions if one[place] == value] for value in values}
    return " ".join(f"{letter}={value} {' '.join(own) or 'no'}" for value, own in found.items())
