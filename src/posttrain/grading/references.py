"""Reference programs, which must pass their own tests before anything is rewarded by these."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from posttrain.errors import TaskFault, UserError
from posttrain.grading.programs import LONGEST, code_in
from posttrain.types import Score, Task, Trajectory

TOGETHER = 16
"""References that are run at once."""


def reference_of(task: Task) -> str:
    """The field ``reference`` of a task, or its answer, without a fence; empty if it has none.

    Demonstrations are not taken: tasks to learn from mistakes have wrong ones.
    """
    given = task.fields.get("reference") or task.answer
    return (code_in(given) or "") if isinstance(given, str) else ""


async def check_references(
    tasks: Sequence[Task], score: Callable[[Trajectory, str], Awaitable[Score]], most: int
) -> None:
    """Raise `UserError` for a task whose reference does not score ``ok``; `most` are run, evenly spread."""
    found = [task for task in tasks if 0 < len(reference_of(task)) <= LONGEST]
    count = min(most, len(found))
    chosen = [found[place * len(found) // count] for place in range(count)]

    async def run(task: Task) -> Score:
        return await score(Trajectory(task=task, segments=(), stop_reason="stop"), reference_of(task))

    for start in range(0, count, TOGETHER):
        batch = chosen[start : start + TOGETHER]
        for task, own in zip(batch, await asyncio.gather(*map(run, batch)), strict=True):
            if own.status == "error":
                raise UserError(f"the reference program of task '{task.key}' could not be run: {own.explanation}")
            if own.status != "ok":
                raise TaskFault(
                    task.key,
                    f"the reference program of task '{task.key}' fails its own tests: {own.explanation}; fix one of "
                    "them, or leave the row out (reward.references=0 runs no reference before training)",
                )
