"""Questions about tables: the query gives what Python works out from the rows, and its neighbours do not."""

import re
import sqlite3
from typing import Any

from posttrain.components.tasks.queries import LARGEST, Queries
from posttrain.types import Task


def rows(task: Task, query: str) -> list[Any]:
    base = sqlite3.connect(":memory:")
    base.executescript(task.fields["schema"])
    return sorted(base.execute(query).fetchall())


def test_a_question_by_hand() -> None:
    task = next(t for t in Queries(size=400).load() if "the most pay with age over" in str(t.prompt))
    found = re.fullmatch(r"staff\(name, age, pay\): the most pay with age over (\d+)\?\n", str(task.prompt))
    assert found is not None
    limit = int(found[1])
    assert task.answer == f"SELECT MAX(pay) FROM staff WHERE age > {limit}"
    plan = f"<reasoning>take the largest pay where age > {limit}</reasoning>"
    assert task.demonstrations[0] == f"{plan}\n<answer>\n```sql\n{task.answer}\n```\n</answer>"
    everybody = rows(task, "SELECT age, pay FROM staff")
    assert rows(task, task.answer) == [(max(pay for age, pay in everybody if age > limit),)]


def test_near_misses_give_other_rows() -> None:
    """Each number one more."""
    for task in Queries(size=200).load():
        right = rows(task, str(task.answer))
        assert right and right != [(None,)] and right != [(0,)]
        for found in re.finditer(r"(?<== |< |> )\d+", str(task.answer)):
            near = f"{task.answer[: found.start()]}{int(found[0]) + 1}{task.answer[found.end() :]}"  # type: ignore[index]
            assert rows(task, near) != right, (task.answer, near)


def test_numbers_are_small() -> None:
    for task in Queries(size=100).load():
        assert all(int(number) <= LARGEST for number in re.findall(r"\d+", str(task.answer)))
