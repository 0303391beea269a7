"""Pairs of a task's user, from which a personal reward model infers what the user likes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from posttrain.errors import UserError
from posttrain.types import Task

CONTEXT = "context"
"""The field of a task that has them."""
REQUEST = "request"
"""The field with what the model reads in place of a prompt that names the user."""
NAMES = ("prompt", "chosen", "rejected")


def context_of(task: Task) -> list[tuple[str, str, str]]:
    """Prompt, chosen and rejected completion of each pair. Raises `UserError` for a field of another form."""
    rows = task.fields.get(CONTEXT)
    if isinstance(rows, Sequence) and not isinstance(rows, str):
        found = [_texts(row) for row in rows]
        if all(found):
            return [(prompt, chosen, rejected) for prompt, chosen, rejected in found]
    raise UserError(
        f"task {task.key}: context is {rows!r:.80}, where a list of pairs of its user is needed, each with prompt, "
        "chosen and rejected; take tasks of the kind personal, which draw them"
    )


def shown_as(task: Task) -> Task:
    """The task with the prompt that a personal reward model reads: its field ``request``, if it has one."""
    request = task.fields.get(REQUEST)
    return replace(task, prompt=request) if isinstance(request, str) else task


def _texts(row: object) -> tuple[str, ...]:
    """The three texts of a pair; empty where one is missing."""
    texts = tuple(row.get(name) for name in NAMES) if isinstance(row, Mapping) else ()
    return tuple(map(str, texts)) if texts and all(isinstance(text, str) for text in texts) else ()
