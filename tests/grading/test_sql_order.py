"""Which order of rows a query promises, for what patterns miss or invent."""

import pytest

from posttrain.grading.sql_order import Unread, order_of
from posttrain.grading.values import tree_of

PROMISES = (
    "SELECT a FROM t ORDER BY a",
    "SELECT a FROM t GROUP BY a ORDER BY COUNT(*)",
    "SELECT a FROM t ORDER BY lower(b)",
    "SELECT a FROM t ORDER BY a -- as it was asked for (in rising order)",
    "SELECT a FROM t ORDER BY a /* ) */ ;",
    "(SELECT a FROM t ORDER BY a)",
    "SELECT a FROM t UNION SELECT c FROM t ORDER BY 1 LIMIT 3",
    "WITH c AS (SELECT a FROM t) SELECT * FROM c ORDER BY a DESC",
    "SELECT a FROM t ORDER BY (SELECT max(a) FROM t WHERE b > 'x')",
    "SELECT DISTINCT a FROM t ORDER BY a",
    "SELECT a FROM t ORDER BY a, RANDOM()",
)
NONE = (
    "SELECT a FROM t",
    "SELECT a FROM t ORDER BY RANDOM()",
    "SELECT a FROM t ORDER BY 'a'",
    "SELECT a FROM t WHERE b = 'order by a'",
    "SELECT a FROM t -- order by a",
    "SELECT a FROM (SELECT a FROM t ORDER BY a)",
    "SELECT row_number() OVER (ORDER BY a) FROM t",
    'SELECT "order by" FROM t',
)
UNREAD = {
    "SELEC a ORDER BY a": "cannot be parsed",
    "DROP ORDER": "cannot be parsed",
    "SELECT 1; SELECT 2 ORDER BY 1": "it is 2 statements",
    "SELECT a FROM t ORDER BY 2": "it is ordered by column 2 of 1",
    "SELECT DISTINCT a FROM t ORDER BY b": "a sort key is none of its columns",
    "SELECT " + "(" * 3000 + "a" + ")" * 3000 + " FROM t ORDER BY a": "nested too deeply",
}


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_which_queries_promise_an_order(engine: str) -> None:
    assert [query for query in PROMISES if order_of(query, engine) is None] == []
    assert [query for query in NONE if order_of(query, engine) is not None] == []


@pytest.mark.parametrize("query", UNREAD, ids=lambda query: query[:20])
def test_what_cannot_be_read_is_reported(query: str) -> None:
    with pytest.raises(Unread, match=UNREAD[query]):
        order_of(query, "sqlite")


def test_rows_of_equal_keys_are_a_block() -> None:
    rows = [tree_of(list(row)) for row in (("x", 1), ("y", 1), ("z", 2), ("y", 1))]
    ranked = order_of("SELECT b FROM t ORDER BY a", "sqlite")
    assert ranked is not None and "DENSE_RANK() OVER (ORDER BY a)" in ranked.ranked
    assert ranked.blocks(rows) == [[tree_of(["x"]), tree_of(["y"])], [tree_of(["z"])], [tree_of(["y"])]]
    named = order_of("SELECT DISTINCT b, a FROM t ORDER BY a", "sqlite")
    assert named is not None and named.columns == (1,)
    assert named.blocks(rows) == [rows[:2], rows[2:3], rows[3:]]


def test_a_name_in_an_expression_is_what_it_stands_for() -> None:
    order = order_of("SELECT a + 1 AS n FROM t ORDER BY n * 2 DESC", "sqlite")
    assert order is not None and "DENSE_RANK() OVER (ORDER BY (a + 1) * 2 DESC)" in order.ranked
