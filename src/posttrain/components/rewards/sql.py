"""SQL queries, scored by their result: run on SQLite or DuckDB in a sandbox, and compared outside as multisets of rows.

A task's field ``schema`` is a script that makes and fills the database. Its answer is the reference query, or its field
``rows`` has the expected rows. The order of rows counts only where the reference query promises one, and rows with
equal sort keys may come in any order; names of columns are ignored. Source: Papicchio et al. 2025 (Think2SQL),
arXiv:2504.15077: execution accuracy, and cell precision, cell recall and tuple cardinality of QATCH, which are recorded
as parts and rewarded by `partial`.

Differs: the weight of these measures, and that they are averaged, is ours. Where LIMIT cuts between rows with equal
sort keys, those that the reference gives are expected. A reference whose order cannot be read, which SQLite or DuckDB
run all the same, is taken for one without order; its scores have a part ``order_unread``.
"""

import importlib.util
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import UserError
from posttrain.grading.programs import broken, encoded, how_it_ended, score_each
from posttrain.grading.sql_order import Unread, order_of
from posttrain.grading.values import ENCODER, Tree, in_order, number_of, parse, same, tree_of
from posttrain.sandbox import Limits, Result, Tier, open_pool, python_job
from posttrain.types import Group, Score, Task, Trajectory

PACKAGES: Final = "/packages"
WORKER: Final = (
    ENCODER
    + f'''
import json, sys
sys.path.insert(0, "{PACKAGES}")
job = json.loads(sys.stdin.buffer.read())
if job["engine"] == "sqlite":
    import sqlite3
    base = sqlite3.connect(":memory:")
    base.executescript(job["schema"])
    base.execute("PRAGMA query_only = ON")
else:
    import duckdb
    base = duckdb.connect(":memory:")
    base.execute("SET threads = 1")
    base.execute(job["schema"])
found = base.execute(job["query"])
rows = found.fetchmany(job["most"] + 1) if found is not None and found.description else []
plain = lambda x: x if type(x) in (int, float, str, bytes, bool, type(None), list, dict, tuple) else str(x)
print(json.dumps([encode([plain(x) for x in row], [10_000]) for row in rows]))
'''
)
MOST_ROWS: Final = 5000
"""Most rows of a correct query, unless the reference gives as many."""


@dataclass(frozen=True)
class _Expected:
    """The rows of a reference, in blocks whose rows may come in any order."""

    blocks: Sequence[Sequence[Tree]]
    unread: str = ""
    """Why the order that the reference promises is not known; empty where it is."""

    @property
    def rows(self) -> list[Tree]:
        return [row for block in self.blocks for row in block]


@frozen
class SQL(Reward):
    """Rewards a query with the rows of the reference query."""

    engine: Literal["sqlite", "duckdb"] = "sqlite"
    """The database that runs the queries."""
    partial: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Partial reward of a wrong query, as a share of the way from `wrong` to `right`; multiplied by the mean of cell
    precision, cell recall and cardinality."""
    tolerance: Annotated[float, Field(ge=0.0)] = 1e-9
    """Largest difference of two equal floating-point numbers, relative to the larger one."""
    right: float = 1.0
    """Reward of a query with the expected rows."""
    wrong: float = 0.0
    """Reward of a query with other rows, and of one that fails."""
    missing: float = 0.0
    """Reward of a completion without a query."""
    limits: Limits = Limits(cpu_s=1.0, output_kb=4096)
    """Limits of one query, the creation of the database included."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which queries may be run: see ``posttrain doctor``."""

    @property
    def runs(self) -> str:
        """The language of the programs."""
        return "sql"

    def prepare(self) -> None:
        """Open the sandbox. Raises `UserError` without one that is strong enough, or without the engine."""
        open_pool(self.weakest)
        if self.engine == "duckdb":
            _duckdb()

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Run every query, and each reference query once, and compare the rows."""
        rows: dict[int, Any] = {}
        for task in {id(trajectory.task): trajectory.task for trajectory in group}.values():
            if not _fault(task):
                rows[id(task)] = await self._expected(task)

        async def score(trajectory: Trajectory, code: str) -> Score:
            return await self._score(trajectory.task, code, rows[id(trajectory.task)])

        return await score_each(group, score, self.missing, lambda trajectory: _fault(trajectory.task))

    async def _expected(self, task: Task) -> "_Expected | Score":
        """The expected rows; a failure if the reference query fails."""
        if "rows" in task.fields:
            return _Expected([[tree_of(list(row)) for row in task.fields["rows"]]])
        query = task.answer or ""
        result = await self._run(task, query)
        rows = _rows(result)
        if rows is None:
            return failure(f"the reference query of '{task.key}' {how_it_ended(result)}")
        try:
            order = order_of(query, self.engine)
        except Unread as error:
            return _Expected([rows], unread=str(error))
        if order is None:
            return _Expected([rows])
        ranked = _rows(await self._run(task, order.ranked)) if order.ranked else rows
        # Where the database refuses ranks, no two rows may change places.
        return _Expected(order.blocks(ranked) if ranked is not None else [[row] for row in rows])

    async def _score(self, task: Task, query: str, expected: "_Expected | Score") -> Score:
        if isinstance(expected, Score):
            return expected
        result = await self._run(task, query)
        if error := broken(result):
            return error
        rows, wanted = _rows(result), expected.rows
        unread = {"order_unread": Score(value=1.0, status="ok", explanation=expected.unread)} if expected.unread else {}
        if rows is None:
            explanation = f"the query {how_it_ended(result)}"
            return Score(value=self.wrong, status="wrong", answer=query, explanation=explanation, parts=unread)
        if len(rows) <= max(MOST_ROWS, len(wanted)) and self._same(rows, expected):
            explanation = f"gives the {len(wanted)} rows expected"
            return Score(value=self.right, status="ok", answer=query, explanation=explanation, parts=unread)
        finer = measures(rows, wanted)
        share = self.partial * sum(finer.values()) / len(finer)
        return Score(
            value=self.wrong + (self.right - self.wrong) * share,
            status="wrong",
            answer=query,
            explanation=f"gives {len(rows)} rows that are not the {len(wanted)} expected",
            parts={name: Score(value=value, status="wrong") for name, value in finer.items()} | unread,
        )

    def _same(self, rows: Sequence[Any], expected: _Expected) -> bool:
        """Whether rows are those expected, block by block."""
        if len(rows) != len(expected.rows):
            return False
        begin = 0
        for block in expected.blocks:
            found = in_order(rows[begin : begin + len(block)])
            if not same(["list", found], ["list", in_order(block)], tolerance=self.tolerance, loose=True):
                return False
            begin += len(block)
        return True

    async def _run(self, task: Task, query: str) -> Result:
        message = {"engine": self.engine, "schema": task.fields["schema"], "query": query, "most": MOST_ROWS}
        folders = _duckdb() if self.engine == "duckdb" else {}
        stdin = json.dumps(message).encode("ascii")
        return await open_pool(self.weakest).result(
            python_job(encoded(WORKER), stdin=stdin, folders=folders, warm=True), self.limits
        )


def measures(rows: Sequence[Any], expected: Sequence[Any]) -> dict[str, float]:
    """Cell precision, cell recall and tuple cardinality relative to the expected rows, each in [0, 1]."""
    found, wanted = (Counter(_text(cell) for row in table for cell in _cells(row)) for table in (rows, expected))
    common = (found & wanted).total()
    most = max(len(rows), len(expected))
    return {
        "cell_precision": common / found.total() if found else float(not wanted),
        "cell_recall": common / wanted.total() if wanted else float(not found),
        "cardinality": min(len(rows), len(expected)) / most if most else 1.0,
    }


def _cells(row: Any) -> list[Any]:
    return row[1] if isinstance(row, list) and len(row) == 2 and isinstance(row[1], list) else [row]


def _text(cell: Any) -> str:
    """The text of a cell, the same for 1 and 1.0."""
    number = number_of(cell)
    return json.dumps(cell) if number is None else str(number)


def _rows(result: Result) -> list[Any] | None:
    """The rows in the output of a run; None if it failed or printed something else."""
    rows = parse(result.stdout) if result.outcome == "ok" else None
    return rows if isinstance(rows, list) else None


def _fault(task: Task) -> str:
    if not isinstance(task.fields.get("schema"), str):
        return "has no field 'schema', a script that makes the database"
    rows = task.fields.get("rows")
    if "rows" in task.fields:
        listed = isinstance(rows, list) and all(isinstance(row, list | tuple) for row in rows)
        return "" if listed else "has a field 'rows' that is no list of lists"
    return "" if task.answer else "has neither a reference query as its answer nor 'rows'"


@cache
def _duckdb() -> dict[str, str]:
    """Folders of DuckDB, by their path in the sandbox. Raises `UserError` if it is not installed."""
    found = {}
    for name in ("duckdb", "_duckdb"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise UserError(f"the reward 'sql' with engine duckdb needs the package {name}; pip install duckdb")
        path = Path(spec.origin)
        path = path.parent if path.name == "__init__.py" else path
        found[f"{PACKAGES}/{path.name}"] = str(path)
        about = next(path.parent.glob("duckdb-*.dist-info"), None)  # the package reads its own version
        found |= {f"{PACKAGES}/{about.name}": str(about)} if about else {}
    return found
