"""A table of samples between those who make them and those who use them.

Source: TransferQueue of AsyncFlow (arXiv:2507.01663; Ascend/TransferQueue, controller and samplers). Rows are samples,
columns their parts. A row is ready for a consumer when every column that it requires is there and this consumer has not
taken it: each has a flag of its own for each row, so that several use the same sample, in any order. What is taken is
marked when it is handed out. The version of the weights is a column like others.

Differs: taken rows are given back when their consumer fails; the source loses them. Groups are aligned; the source
takes any n consecutive ready rows, which may be of two prompts. One process holds the table.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from posttrain.errors import UserError

Choice = Callable[["Table", Sequence[int], int], list[int] | None]
"""Chooses this many of the ready rows, given in their order; None where it cannot yet."""


class Table:
    """Rows by number, each with the columns that were produced so far."""

    def __init__(self) -> None:
        self._cells: dict[int, dict[str, Any]] = {}
        self._taken: dict[str, set[int]] = {}
        self._next = 0

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._cells)

    def add(self, **columns: Any) -> int:
        """A new row with these columns; returns its number, which grows with each row."""
        row, self._next = self._next, self._next + 1
        self._cells[row] = dict(columns)
        return row

    def put(self, row: int, **columns: Any) -> None:
        """Produce further columns of a row. Raises `UserError` for a row that is not there."""
        if row not in self._cells:
            raise UserError(f"the table has no row {row}; add it first, or it was removed")
        self._cells[row] |= columns

    def get(self, row: int, column: str) -> Any:
        """A cell that was produced."""
        return self._cells[row][column]

    def ready(self, consumer: str, columns: Collection[str]) -> list[int]:
        """The rows that have all these columns and that this consumer has not taken, in their order."""
        taken = self._taken.get(consumer, set())
        return [row for row, cells in self._cells.items() if row not in taken and cells.keys() >= set(columns)]

    def take(self, consumer: str, columns: Collection[str], count: int, choice: "Choice | None" = None) -> list[int]:
        """Rows for a consumer, marked as taken; none, and no mark, where there are not yet enough."""
        ready = self.ready(consumer, columns)
        chosen = (choice or first)(self, ready, count)
        if not chosen:
            return []
        self._taken.setdefault(consumer, set()).update(chosen)
        return chosen

    def give_back(self, consumer: str, rows: Collection[int]) -> None:
        """Unmark rows that a consumer took and did not use, since it ended."""
        self._taken.get(consumer, set()).difference_update(rows)

    def remove(self, rows: Collection[int]) -> None:
        """Forget rows."""
        for row in rows:
            self._cells.pop(row, None)
        for taken in self._taken.values():
            taken.difference_update(rows)

    def packed(self) -> dict[str, Any]:
        """As JSON, if the cells are."""
        return {
            "next": self._next,
            "rows": [[row, dict(cells)] for row, cells in self._cells.items()],
            "taken": {consumer: sorted(rows) for consumer, rows in self._taken.items() if rows},
        }

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> "Table":
        """What `packed` was made from."""
        table = cls()
        table._next = packed["next"]
        table._cells = {row: dict(cells) for row, cells in packed["rows"]}
        table._taken = {consumer: set(rows) for consumer, rows in packed["taken"].items()}
        return table


def first(table: Table, ready: Sequence[int], count: int) -> list[int] | None:
    """The first rows."""
    return list(ready[:count]) if len(ready) >= count else None


def groups_of(column: str, size: int) -> Choice:
    """Whole groups of `size` rows with an equal value in a column, those first that are complete first in the table.

    Raises `UserError` for a number of rows that is not a multiple of the size.
    """

    def choose(table: Table, ready: Sequence[int], count: int) -> list[int] | None:
        if count % size:
            raise UserError(f"{count} rows are not whole groups of {size}; ask for a multiple of {size}")
        by_group: dict[Any, list[int]] = {}
        whole: list[int] = []
        for row in ready:
            own = by_group.setdefault(table.get(row, column), [])
            own.append(row)
            if len(own) == size:
                whole += own
        return whole[:count] if len(whole) >= count else None

    return choose


def balanced(column: str, parts: int) -> Choice:
    """The first rows, in an order in which the k-th of `parts` consumers gets the k-th share of them, so that the sums
    of a column (of tokens) differ little: the largest goes to the part with the least so far that has room.

    Raises `UserError` for a number of rows that is not a multiple of the parts.
    """

    def choose(table: Table, ready: Sequence[int], count: int) -> list[int] | None:
        if count % parts:
            raise UserError(f"{count} rows cannot be shared by {parts} parts; ask for a multiple of {parts}")
        if len(ready) < count:
            return None
        shares: list[list[int]] = [[] for _ in range(parts)]
        sums = [0.0] * parts
        for row in sorted(ready[:count], key=lambda row: (-table.get(row, column), row)):
            place = min((p for p in range(parts) if len(shares[p]) < count // parts), key=lambda p: (sums[p], p))
            shares[place].append(row)
            sums[place] += table.get(row, column)
        return [row for share in shares for row in sorted(share)]

    return choose


def by_age(column: str) -> Choice:
    """The rows with the smallest value in a column (the oldest versions), then the first."""

    def choose(table: Table, ready: Sequence[int], count: int) -> list[int] | None:
        return sorted(ready, key=lambda row: (table.get(row, column), row))[:count] if len(ready) >= count else None

    return choose
