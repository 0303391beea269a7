r"""Generated questions about a small table, to be answered by a SQL query.

The prompt is ``staff(name, age, pay): how many with age over 30?\n``. The demonstration has a plan as reasoning, then
the query in a fenced block, in tags. The reward is `sql`. Each question has a table of its own, in which nearly correct
queries give other rows.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

TABLES: Final[Mapping[str, tuple[str, str, str]]] = {
    "staff": ("name", "age", "pay"),
    "books": ("title", "pages", "price"),
    "cars": ("maker", "speed", "weight"),
}
"""Columns of each table: one of text and two of numbers."""
NAMES: Final = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew")
TESTS: Final = {"over": ">", "under": "<", "of": "="}
MEETS: Final = {"over": 1, "under": -1, "of": 0}
FAILS: Final = {"over": 0, "under": 0, "of": 1}
"""Offset from the number of a test to a value that just meets it, and to one that just does not."""
QUESTIONS: Final = {
    "how many": ("COUNT(*)", "count the rows"),
    "the most {}": ("MAX({})", "take the largest {}"),
    "the least {}": ("MIN({})", "take the smallest {}"),
    "all {}": ("{}", "list every {}"),
}
"""The start of a question, with the expression that it selects, and the plan."""
ANSWER: Final = "<reasoning>{plan}</reasoning>\n<answer>\n```sql\n{query}\n```\n</answer>"
LARGEST: Final = 60

Question = tuple[str, str, str, tuple[tuple[str, str, int], ...]]
"""Table, start of the question, selected column, and conditions: column, test, number."""


@frozen
class Queries(Tasks):
    """Questions with one or two conditions; none is repeated before all have been drawn."""

    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    rows: Annotated[int, Field(ge=4, le=100)] = 12
    """Random rows of the table, besides those that test the conditions."""
    conditions: Annotated[int, Field(ge=1, le=2)] = 2
    """Most conditions of a question, each on a column of its own that is not selected; the fewest is one."""
    reasoned: bool = True
    """Whether demonstrations have a plan before the query; without it, the plan is one dash."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"queries:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"questions about a table (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Question:
        table = rng.choice(tuple(TABLES))
        text, *numbers = TABLES[table]
        begin = rng.choice(tuple(QUESTIONS))
        selected = text if begin == "all {}" else rng.choice(numbers) if "{}" in begin else ""
        # No condition on the selected column: the least weight over 24 could be guessed without the table.
        free = [column for column in numbers if column != selected]
        columns = rng.sample(free, rng.randint(1, min(self.conditions, len(free))))
        return table, begin, selected, tuple((c, rng.choice(tuple(TESTS)), rng.randint(1, LARGEST)) for c in columns)

    def _task(self, question: Question) -> Task:
        table, begin, column, conditions = question
        selected, plan = (text.format(column) for text in QUESTIONS[begin])
        wanted = " and ".join(f"{name} {test} {number}" for name, test, number in conditions)
        where = " AND ".join(f"{name} {TESTS[test]} {number}" for name, test, number in conditions)
        query = f"SELECT {selected} FROM {table} WHERE {where}"
        reasoning = f"{plan} where {where}" if self.reasoned else "-"
        return Task(
            key="",
            prompt=f"{table}({', '.join(TABLES[table])}): {begin.format(column)} with {wanted}?\n",
            answer=query,
            demonstrations=(ANSWER.format(plan=reasoning, query=query),),
            fields={"schema": self._schema(question)},
        )

    def _schema(self, question: Question) -> str:
        """A script that makes the table. Besides random rows, each condition has some that just meet it and some that
        just do not; without the condition, the latter would be the answer.
        """
        table, _, selected, conditions = question
        rng = Random(f"queries:{question}")
        text, *numbers = TABLES[table]
        equal = {column: number for column, test, number in conditions if test == "of"}
        rows = [[rng.choice(_others(equal.get(c))) for c in numbers] for _ in range(self.rows)]
        for column, test, number in conditions:
            for value, meets in ((80, True), (40, True), (1, True), (90, False), (0, False)):
                row = {c: value if c == selected else rng.randint(1, LARGEST) for c in numbers}
                row |= {c: n + MEETS[t] for c, t, n in conditions}
                row |= {} if meets else {column: number + FAILS[test]}
                rows.append(list(row.values()))
        rng.shuffle(rows)
        named = ", ".join(f"('{rng.choice(NAMES)}', {', '.join(map(str, row))})" for row in rows)
        columns = ", ".join([f"{text} TEXT", *(f"{column} INTEGER" for column in numbers)])
        return f"CREATE TABLE {table}({columns}); INSERT INTO {table} VALUES {named};"


def _others(number: int | None) -> list[int]:
    """Numbers to draw from, without the extremes, and without the successor of a number that a condition equals; these
    are in rows of their own.
    """
    return [n for n in range(2, LARGEST + 1) if number is None or n != number + 1]
