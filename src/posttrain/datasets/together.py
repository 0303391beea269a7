"""Tasks that share the value of a field, such as the documents of a query."""

import json
from collections.abc import Sequence

from posttrain.component import nearest
from posttrain.errors import TaskFault
from posttrain.types import Task

DOMAIN = "domain"
"""The name by which a task's domain is a field."""


def value_of(task: Task, field: str) -> str | None:
    """The value of a field as a text, equal for equal values; None where the task has none."""
    if field == DOMAIN:
        return task.domain or None
    value = task.fields.get(field)
    return None if value is None else json.dumps(value, sort_keys=True, default=str)


def lists_in(tasks: Sequence[Task], field: str) -> list[list[int]]:
    """The places of the tasks of each value, in order of their first ones; a task without the field is alone."""
    found: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):
        value = value_of(task, field)
        found.setdefault(f"task {task.key}" if value is None else f"value {value}", []).append(place)
    return list(found.values())


def lists(tasks: Sequence[Task], field: str, user: str) -> list[tuple[Task, ...]]:
    """The tasks of each value, in order of their first ones. Raises `UserError` for a task without the field.

    `user` is what needs the field, for the message.
    """
    for task in tasks:
        if value_of(task, field) is None:
            raise TaskFault(
                task.key,
                f"task {task.key} has no field '{field}', by which {user} draws and scores tasks together; give each "
                f"row a column '{field}' with the same value in all rows that belong together ("
                f"{nearest(field, (*(DOMAIN,) * bool(task.domain), *task.fields))})",
            )
    return [tuple(tasks[place] for place in places) for places in lists_in(tasks, field)]
