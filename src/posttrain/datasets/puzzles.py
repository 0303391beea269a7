"""Puzzles with all of their solutions: alphametics, products of two digits, and Sudoku of six rows."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations

import numpy as np

from posttrain.types import IntArray

SIDE, HIGH, WIDE = 6, 2, 3
"""Rows of a Sudoku; rows and columns of its boxes."""
CELLS = SIDE * SIDE
FULL = (1 << SIDE) - 1


@lru_cache(maxsize=8)
def _assignments(letters: int) -> IntArray:
    """[P, letters] all ways to give letters different digits, in order."""
    return np.array(list(permutations(range(10), letters)), np.int64).reshape(-1, letters)


def alphametic(puzzle: str) -> list[str]:
    """All solutions of ``A+A=BC`` as sums, ``5+5=10``, in the order of the digits of the letters.

    Different letters are different digits, and a word of several letters does not begin with 0. Found by trying; seven
    letters have 604,800 assignments.
    """
    left, right = puzzle.split("=")
    words = [*left.split("+"), right]
    letters = list(dict.fromkeys("".join(words)))
    digit_PL = _assignments(len(letters))
    factor_L = np.zeros(len(letters), np.int64)
    possible_P = np.ones(len(digit_PL), bool)
    for place, word in enumerate(words):
        sign = -1 if place == len(words) - 1 else 1
        for power, letter in enumerate(reversed(word)):
            factor_L[letters.index(letter)] += sign * 10**power
        if len(word) > 1:
            possible_P &= digit_PL[:, letters.index(word[0])] != 0
    rows = digit_PL[possible_P & (digit_PL @ factor_L == 0)].tolist()
    return [puzzle.translate({ord(a): str(digit) for a, digit in zip(letters, row, strict=True)}) for row in rows]


def product(added: int, result: int) -> list[str]:
    """All solutions of ``A*B+added=result`` with digits 1 to 9 and A < B, ``3*8+7=31``, by rising A."""
    digits = range(1, 10)
    return [f"{a}*{b}+{added}={result}" for a in digits for b in digits if a < b and a * b + added == result]


def sudoku(grid: str, most: int) -> list[str]:
    """At most `most` completions of 36 cells, digits 1 to 6 or dots, in the order of their digits.

    Rows, columns and boxes of two rows and three columns have every digit once. None for a grid that contradicts
    itself.
    """
    rows, columns, boxes = [0] * SIDE, [0] * SIDE, [0] * SIDE
    cells = [0 if cell == "." else int(cell) for cell in grid]
    for place, digit in enumerate(cells):
        bit = 1 << (digit - 1) if digit else 0
        row, column, box = _units(place)
        if (rows[row] | columns[column] | boxes[box]) & bit:
            return []
        rows[row], columns[column], boxes[box] = rows[row] | bit, columns[column] | bit, boxes[box] | bit

    def completions() -> Iterator[str]:
        empty = [place for place, digit in enumerate(cells) if not digit]
        if not empty:
            yield "".join(map(str, cells))
            return

        def left(place: int) -> int:
            row, column, box = _units(place)
            return FULL & ~(rows[row] | columns[column] | boxes[box])

        place = min(empty, key=lambda one: left(one).bit_count())
        row, column, box = _units(place)
        for digit in range(1, SIDE + 1):
            bit = 1 << (digit - 1)
            if left(place) & bit:
                for units, unit in ((rows, row), (columns, column), (boxes, box)):
                    units[unit] |= bit
                cells[place] = digit
                yield from completions()
                cells[place] = 0
                for units, unit in ((rows, row), (columns, column), (boxes, box)):
                    units[unit] &= ~bit

    found: list[str] = []
    for one in completions():
        found.append(one)
        if len(found) == most:
            break
    return sorted(found)


def _units(place: int) -> tuple[int, int, int]:
    """Row, column and box of a cell."""
    row, column = divmod(place, SIDE)
    return row, column, row // HIGH * (SIDE // WIDE) + column // WIDE
