r"""Generated questions about a small table, to be answered by a SQL query.

``staff(name, age, pay): how many with age over 30?\n`` asks; demonstrated is a plan as reasoning, then the query in a
fenced block, in tags. Judged by `sql`: each question has a table of its own, in which near misses give other rows.
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
"""A column of text and two of numbers each."""
NAMES: Final = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew")
TESTS: Final = {"over": ">", "under": "<", "of": "="}
MEETS: Final = {"over": 1, "under": -1, "of": 0}
FAILS: Final = {"over": 0, "under": 0, "of": 1}
"""What has to be added to the number of a test for a value that just meets it, and for one that just does not."""
ASKED: Final = {
    "how many": ("COUNT(*)", "count the rows"),
    "the most {}": ("MAX({})", "take the largest {}"),
    "the least {}": ("MIN({})", "take the smallest {}"),
    "all {}": ("{}", "list every {}"),
}
"""How a question begins, with what is selected for it, and the plan."""
ANSWER: Final = "<reasoning>{plan}</reasoning>\n<answer>\n```sql\n{query}\n```\n</answer>"
LARGEST: Final = 60

Question = tuple[str, str, str, tuple[tuple[str, str, int], ...]]
"""Table, beginning, the column that it asks for, and conditions: column, test, number."""


@frozen
class Queries(Tasks):
    """Questions with one or two conditions, all different while they last."""

    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    rows: Annotated[int, Field(ge=4, le=100)] = 12
    """Rows of the table that are drawn at random, beside those that show whether a condition is met."""
    conditions: Annotated[int, Field(ge=1, le=2)] = 2
    """Most conditions of a question, each on a column of its own that is not asked for; the fewest is one."""
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
        begin = rng.choice(tuple(ASKED))
        asked = text if begin == "all {}" else rng.choice(numbers) if "{}" in begin else ""
        # Never on what is asked for: the least weight over 24 could be said without looking at the table.
        free = [column for column in numbers if column != asked]
        columns = rng.sample(free, rng.randint(1, min(self.conditions, len(free))))
        return table, begin, asked, tuple((c, rng.choice(tuple(TESTS)), rng.randint(1, LARGEST)) for c in columns)

    def _task(self, question: Question) -> Task:
        table, begin, asked, conditions = question
        selected, plan = (text.format(asked) for text in ASKED[begin])
        wanted = " and ".join(f"{column} {test} {number}" for column, test, number in conditions)
        where = " AND ".join(f"{column} {TESTS[test]} {number}" for column, test, number in conditions)
        query = f"SELECT {selected} FROM {table} WHERE {where}"
        said = f"{plan} where {where}" if self.reasoned else "-"
        return Task(
            key="",
            prompt=f"{table}({', '.join(TABLES[table])}): {begin.format(asked)} with {wanted}?\n",
            answer=query,
            demonstrations=(ANSWER.format(plan=said, query=query),),
            fields={"schema": self._schema(question)},
        )

    def _schema(self, question: Question) -> str:
        """A script that makes the table: rows at random, and for each condition some that just meet it and some that
        just do not, whose values would be the answer.
        """
        table, _, asked, conditions = question
        rng = Random(f"queries:{question}")
        text, *numbers = TABLES[table]
        equal = {column: number for column, test, number in conditions if test == "of"}
        rows = [[rng.choice(_others(equal.get(c))) for c in numbers] for _ in range(self.rows)]
        for column, test, number in conditions:
            for value, meets in ((80, True), (40, True), (1, True), (90, False), (0, False)):
                row = {c: value if c == asked else rng.randint(1, LARGEST) for c in numbers}
                row |= {c: n + MEETS[t] for c, t, n in conditions}
                row |= {} if meets else {column: number + FAILS[test]}
                rows.append(list(row.values()))
        rng.shuffle(rows)
        named = ", ".join(f"('{rng.choice(NAMES)}', {', '.join(map(str, row))})" for row in rows)
        columns = ", ".join([f"{text} TEXT", *(f"{column} INTEGER" for column in numbers)])
        return f"CREATE TABLE {table}({columns}); INSERT INTO {table} VALUES {named};"


def _others(number: int | None) -> list[int]:
    """Numbers to draw from: neither the least and the largest value, nor, where a number is asked for, one more than
    it; these are in rows of their own.
    """
    return [n for n in range(2, LARGEST + 1) if number is None or n != number + 1]
