"""Tasks to audit with where none are given."""

from collections.abc import Sequence

from pydantic import TypeAdapter

from posttrain.tasks import Tasks
from posttrain.types import Task

ASKED = (
    ("number", "What do you get when you multiply six by seven?", "42"),
    ("negative", "What remains of three thousand when you take away 4200?", "-1200"),
    ("fraction", "Which part of a cake is left when a quarter was eaten?", "3/4"),
    ("word", "In which direction does the sun rise, would you say?", "east"),
)
"""Key, prompt and answer."""
GENERATED: dict[str, object] = {
    "countdown": "countdown",
    "reasoning_gym": {"kind": "reasoning_gym", "name": "chain_sum", "size": 3},
}
"""Rewards that judge by fields of their own tasks, and the kind of tasks."""
COUNT = 3
"""Tasks taken of those that were given or generated."""


def sample_tasks(kind: str, given: object = None) -> Sequence[Task]:
    """A few tasks: of those given, of the kind that a reward needs, or ours."""
    source = given if given is not None else GENERATED.get(kind)
    if source is None:
        return [Task(key=key, prompt=prompt, answer=answer) for key, prompt, answer in ASKED]
    loaded = TypeAdapter(Tasks).validate_python(source).load()
    answered = [task for task in loaded if task.answer]
    return (answered or list(loaded))[:COUNT]
