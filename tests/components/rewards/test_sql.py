import importlib.util

import pytest

from posttrain.components.rewards.sql import SQL, measures
from posttrain.sandbox import Limits
from posttrain.types import Task
from tests.components.rewards.judging import judge
from tests.components.rewards.programs import tier_for

SCHEMA = (
    "CREATE TABLE t(a INTEGER, b TEXT, c DOUBLE); INSERT INTO t VALUES (1,'x',.5), (2,'y',.1), (3,'z',.2), (3,'z',.2);"
)
TASK = Task(key="t", prompt="?", answer="SELECT a, b FROM t WHERE a > 1", fields={"schema": SCHEMA})
ORDERED = Task(key="o", prompt="?", answer="SELECT a FROM t ORDER BY a DESC", fields={"schema": SCHEMA})


@pytest.fixture(params=["sqlite", "duckdb"])
def reward(request: pytest.FixtureRequest) -> SQL:
    assert importlib.util.find_spec("duckdb")
    made = SQL(engine=request.param, weakest=tier_for(), limits=Limits(cpu_s=3.0, wall_s=120.0, output_kb=4096))
    made.prepare()
    return made


@pytest.mark.slow
def test_rows_decide_and_not_the_text(reward: SQL) -> None:
    for query in (
        "select a, b from t where a >= 2 order by b desc",
        "```sql\nSELECT a AS n, b FROM t WHERE NOT a = 1;\n```",
    ):
        assert judge(reward, query, TASK).status == "ok"
    for query in (
        "SELECT a FROM t WHERE a > 1",
        "SELECT DISTINCT a, b FROM t WHERE a > 1",
        "SELECT b, a FROM t WHERE a > 1",
        "SELECT CAST(a AS TEXT), b FROM t WHERE a > 1",
        "DROP TABLE t",
        "SELEC",
        "SELECT 1",
    ):
        score = judge(reward, query, TASK)
        assert (score.status, score.value) == ("wrong", 0.0), query


@pytest.mark.slow
def test_order_counts_where_the_reference_orders(reward: SQL) -> None:
    assert judge(reward, "SELECT a FROM t ORDER BY -a", ORDERED).status == "ok"
    assert judge(reward, "SELECT a FROM t ORDER BY a", ORDERED).status == "wrong"


TIES = "CREATE TABLE t(a INTEGER, b TEXT); INSERT INTO t VALUES (1,'x'), (1,'y'), (2,'Z'), (3,'z');"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "right", "wrong"),
    [
        ("SELECT b FROM t ORDER BY a", "SELECT b FROM t ORDER BY a, b DESC", "SELECT b FROM t ORDER BY b DESC, a"),
        (
            "SELECT a, count(*) FROM t GROUP BY a ORDER BY COUNT(*) DESC",
            "SELECT a, count(*) FROM t GROUP BY a ORDER BY 2 DESC, a DESC",
            "SELECT a, count(*) FROM t GROUP BY a ORDER BY 2",
        ),
        (
            "SELECT a FROM t UNION ALL SELECT 2 ORDER BY a -- (rising)",
            "SELECT a FROM (SELECT a FROM t UNION ALL SELECT 2) ORDER BY a",
            "SELECT a FROM (SELECT a FROM t UNION ALL SELECT 2) ORDER BY a DESC",
        ),
        ("SELECT b FROM t ORDER BY RANDOM()", "SELECT b FROM t ORDER BY b DESC", "SELECT b FROM t WHERE a < 3"),
        ("SELECT b, 'order by b' FROM t", "SELECT b, 'order by b' FROM t ORDER BY b DESC", "SELECT b, 1 FROM t"),
    ],
)
def test_rows_that_tie_may_change_places(reward: SQL, reference: str, right: str, wrong: str) -> None:
    task = Task(key="t", prompt="?", answer=reference, fields={"schema": TIES})
    assert judge(reward, right, task).status == "ok"
    assert judge(reward, wrong, task).status == "wrong"


def test_a_collation_of_the_table_decides_which_rows_tie() -> None:
    schema = "CREATE TABLE t(b TEXT COLLATE NOCASE, a INTEGER); INSERT INTO t VALUES ('z',1), ('Z',2), ('x',3);"
    task = Task(key="t", prompt="?", answer="SELECT b, a FROM t ORDER BY b", fields={"schema": schema})
    reward = SQL(weakest=tier_for())
    assert judge(reward, "SELECT b, a FROM t ORDER BY b, a DESC", task).status == "ok"
    assert judge(reward, "SELECT b, a FROM t ORDER BY b DESC", task).status == "wrong"


def test_an_order_that_cannot_be_read_is_counted() -> None:
    query = "SELECT DISTINCT a FROM t ORDER BY b"  # SQLite takes it, and it means nothing
    score = judge(
        SQL(weakest=tier_for()),
        "SELECT DISTINCT a FROM t",
        Task(key="t", prompt="?", answer=query, fields={"schema": TIES}),
    )
    assert score.status == "ok" and score.parts["order_unread"].value == 1.0
    assert "a sort key is none of its columns" in score.parts["order_unread"].explanation


def test_sums_of_fractions_may_differ_in_the_last_digit(reward: SQL) -> None:
    task = Task(key="t", prompt="?", fields={"schema": SCHEMA, "rows": [[0.1 + 0.2 + 0.2 + 0.5]]})
    assert judge(reward, "SELECT sum(c) FROM t", task).status == "ok"
    assert judge(reward, "SELECT 1.001", task).status == "wrong"


@pytest.mark.slow
def test_a_query_without_end_is_stopped(reward: SQL) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    score = judge(reward, endless, TASK)
    assert score.status == "wrong"


def test_a_reference_that_fails_is_an_error(reward: SQL) -> None:
    task = Task(key="t", prompt="?", answer="SELECT nothing FROM nowhere", fields={"schema": SCHEMA})
    assert judge(reward, "SELECT 1", task).status == "error"


def test_finer_measures_by_hand() -> None:
    row = lambda *cells: ["list", [["int", hex(c)] for c in cells]]  # noqa: E731
    found = measures([row(1, 2), row(3, 9)], [row(1, 2), row(3, 4), row(5, 6)])
    assert found == {"cell_precision": 3 / 4, "cell_recall": 3 / 6, "cardinality": 2 / 3}
    assert measures([], []) == {"cell_precision": 1.0, "cell_recall": 1.0, "cardinality": 1.0}
    assert measures([["list", [["float", (1.0).hex()]]]], [row(1)])["cell_recall"] == 1.0, "1.0 is 1"
    assert measures([], [row(1)]) == {"cell_precision": 0.0, "cell_recall": 0.0, "cardinality": 0.0}


def test_partial_rewards_a_part() -> None:
    reward = SQL(partial=0.5, weakest=tier_for())
    score = judge(reward, "SELECT a FROM t WHERE a > 1", TASK)  # precision 1, recall 3/6, cardinality 1
    assert score.value == pytest.approx(0.5 * (1 + 0.5 + 1) / 3)
    assert score.parts["cell_recall"].value == 0.5
