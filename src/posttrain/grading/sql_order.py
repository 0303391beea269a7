"""The order of rows that a SQL query promises: its outermost ORDER BY, as sqlglot reads it.

Rows whose sort keys are equal may come in any order, so the blocks of such rows are what is compared. The keys of a
query are ranked by the database itself: its collations, nulls and expressions are then those of the query.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from posttrain.errors import UserError
from posttrain.errors.foreign import guard

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

MAY_ORDER: Final = re.compile(r"\border\b", re.IGNORECASE)
"""A query without this word promises no order, so that the library is not needed."""


class Unread(UserError):
    """A query whose order cannot be read."""


@dataclass(frozen=True)
class RowOrder:
    """An order that a query promises."""

    ranked: str = ""
    """The query with the rank of a row by its sort keys as one more column; empty where that would change it (DISTINCT,
    UNION, numbers of columns beside a star)."""
    columns: tuple[int, ...] = ()
    """Columns of the result that are the sort keys, from 0, where `ranked` is empty."""

    def blocks(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        """Runs of rows with equal keys; of rows of `ranked` without their rank."""
        found: list[list[Any]] = []
        last: list[Any] | None = None
        for kind, cells in rows:
            keys = [cells[-1]] if self.ranked else [cells[i] for i in self.columns]
            if keys != last:
                found.append([])
            last = keys
            found[-1].append([kind, cells[:-1] if self.ranked else cells])
        return list(found)


def order_of(query: str, engine: str) -> RowOrder | None:
    """The order that a query promises, None for none.

    A key that is drawn at random or constant promises nothing. Raises `Unread` for a query that cannot be parsed, and
    `UserError` where sqlglot is not installed.
    """
    if not MAY_ORDER.search(query):
        return None
    try:
        import sqlglot
    except ImportError:
        raise UserError(
            "a reference query with the word ORDER is read by the library sqlglot; pip install 'posttrain[sql]'"
        ) from None
    try:
        with guard("the query cannot be parsed"):
            return _order_of([one for one in sqlglot.parse(query, read=engine) if one is not None], engine)
    except UserError as error:
        raise Unread(str(error)) from None


def _order_of(statements: "Sequence[Expr]", engine: str) -> RowOrder | None:
    from sqlglot import exp

    if len(statements) != 1:
        raise ValueError(f"it is {len(statements)} statements")
    query: Any = statements[0]
    while isinstance(query, exp.Subquery) and not query.args.get("order"):
        query = query.this
    if not isinstance(query, exp.Query):
        raise ValueError("it is no SELECT")
    keys = _keys(query)
    if not keys:
        return None
    columns = [_column(query, key.this) for key in keys]
    starred = any(one.is_star for one in query.selects)
    numbered = any(isinstance(key.this, exp.Literal) for key in keys)
    if isinstance(query, exp.Select) and not query.args.get("distinct") and not (starred and numbered):
        return RowOrder(ranked=_with_rank(query, keys).sql(dialect=engine))
    if None in columns:
        raise ValueError("a sort key is none of its columns")
    return RowOrder(columns=tuple(i for i in columns if i is not None))


def _keys(query: Any) -> list[Any]:
    """The sort keys that promise something, those of an outer query: after a random one, nothing does."""
    from sqlglot import exp

    order = query.args.get("order")
    keys = []
    for key in order.expressions if order else []:
        if key.find(exp.Rand, exp.Uuid):
            break
        number = isinstance(key.this, exp.Literal) and not key.this.is_string
        if number or key.this.find(exp.Column, exp.AggFunc, exp.Subquery, exp.Window):
            keys.append(key)
    return keys


def _column(query: Any, key: Any) -> int | None:
    """Place in the result of a sort key that is a column of it, as a number or by name; None for others."""
    from sqlglot import exp

    selects = query.selects
    starred = any(one.is_star for one in selects)
    if isinstance(key, exp.Literal):
        if starred or 1 <= int(key.this) <= len(selects):
            return int(key.this) - 1
        raise ValueError(f"it is ordered by column {key.this} of {len(selects)}")
    if starred:
        return None
    for place, one in enumerate(selects):
        named = isinstance(key, exp.Column) and not key.table and key.name.lower() == one.alias_or_name.lower()
        if named or one.unalias() == key:
            return place
    return None


def _with_rank(query: Any, keys: Sequence[Any]) -> Any:
    """A query with the rank of each row by these keys as its last column."""
    from sqlglot import exp

    named = {one.alias.lower(): one.this for one in query.selects if isinstance(one, exp.Alias)}

    def meant(node: Any) -> Any:
        """An expression in the place of its name: only ORDER BY may use the names of the columns."""
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in named:
            return exp.paren(named[node.name.lower()].copy())
        return node

    def ranked(key: Any) -> Any:
        place = _column(query, key.this) if isinstance(key.this, exp.Literal) else None
        key = key.copy()
        key.set("this", query.selects[place].unalias().copy() if place is not None else key.this.transform(meant))
        return key

    rank = exp.Window(this=exp.DenseRank(), order=exp.Order(expressions=[ranked(key) for key in keys]))
    return query.select(exp.alias_(rank, "posttrain_rank"), copy=True)
