"""All solutions of small puzzles, against enumeration and by hand."""

import random

import pytest

from posttrain.datasets.puzzles import CELLS, alphametic, sudoku

FULL = "123456456123214365365214531642642531"


def test_alphametics_by_hand() -> None:
    assert alphametic("A+A=BC") == ["5+5=10", "6+6=12", "7+7=14", "8+8=16", "9+9=18"]
    assert alphametic("A+B=A") == [f"{a}+0={a}" for a in range(1, 10)], "a word of one letter may be 0"
    assert alphametic("AA+B=AA") == [f"{a}{a}+0={a}{a}" for a in range(1, 10)]
    assert alphametic("A+A=A") == ["0+0=0"]
    assert alphametic("A+A=AB") == [] and alphametic("AB+A=B") == []


def valid(grid: str) -> bool:
    """Every row, column and box of two rows and three columns has six digits."""
    rows = [grid[6 * r : 6 * r + 6] for r in range(6)]
    columns = ["".join(row[c] for row in rows) for c in range(6)]
    boxes = ["".join(rows[r + i][c : c + 3] for i in range(2)) for r in (0, 2, 4) for c in (0, 3)]
    return all(sorted(unit) == list("123456") for unit in (*rows, *columns, *boxes))


def test_completions_are_all_of_them() -> None:
    assert valid(FULL) and sudoku(FULL, 9) == [FULL]
    assert sudoku("." + FULL[1:], 9) == [FULL], "nearly full: one"
    rng = random.Random(0)
    several = 0
    for _ in range(20):
        empty = rng.sample(range(CELLS), 16)
        grid = "".join("." if i in empty else c for i, c in enumerate(FULL))
        found = sudoku(grid, 500)
        several += len(found) > 1
        assert FULL in found and len(set(found)) == len(found) < 500
        assert all(valid(one) and all(a in (".", b) for a, b in zip(grid, one, strict=True)) for one in found)
        assert sudoku(grid, 1) == found[:1] or len(sudoku(grid, 1)) == 1
    assert several


def test_a_rectangle_of_two_digits_has_two_completions() -> None:
    """Rows 0 and 1, columns 0 and 3, in boxes 0 and 1: 1 4 / 4 1 may be exchanged."""
    places = (0, 3, 6, 9)
    assert [FULL[i] for i in places] == ["1", "4", "4", "1"]
    grid = "".join("." if i in places else c for i, c in enumerate(FULL))
    assert len(sudoku(grid, 9)) == 2


@pytest.mark.parametrize("grid", ["11" + "." * 34, "1.....1" + "." * 29, "1......1" + "." * 28])
def test_a_contradiction_has_none(grid: str) -> None:
    assert sudoku(grid, 9) == []
