"""Reference programs, which must pass their own tests before anything is rewarded by these."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from posttrain.errors import TaskFault, UserError
from posttrain.grading.programs import LONGEST, code_in
from posttrain.types import Score, Task, Trajectory

TOGETHER: Final = 32
"""References that are run at once."""
MOST_CHECKED: Final = 1000
"""Tasks of a file that are checked before training, where a recipe sets nothing else."""
SILENT_S: Final = 2.0
"""Seconds before progress is shown."""
Found = TypeVar("Found")


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

    async def run(task: Task) -> Score:
        return await score(Trajectory(task=task, segments=(), stop_reason="stop"), reference_of(task))

    def refuse(task: Task, own: Score) -> None:
        if own.status == "error":
            raise UserError(f"the reference program of task '{task.key}' could not be run: {own.explanation}")
        if own.status != "ok":
            raise TaskFault(
                task.key,
                f"the reference program of task '{task.key}' fails its own tests: {own.explanation}; fix one of "
                "them, or leave the row out (reward.references=0 runs no reference before training)",
            )

    await check_each([task for task in tasks if has_reference(task)], run, refuse, most)


def has_reference(task: Task) -> bool:
    """Whether a task has a reference program that can be run."""
    return 0 < len(reference_of(task)) <= LONGEST


async def check_each(
    tasks: Sequence[Task],
    run: Callable[[Task], Awaitable[Found]],
    refuse: Callable[[Task, Found], None],
    most: int,
) -> None:
    """Run at most `most` tasks, evenly spread, several at once; refuse those that fail; show progress on a terminal."""
    count, began, shown = min(most, len(tasks)), time.monotonic(), False
    chosen = [tasks[place * len(tasks) // count] for place in range(count)]
    try:
        for start in range(0, count, TOGETHER):
            batch = chosen[start : start + TOGETHER]
            for task, found in zip(batch, await asyncio.gather(*map(run, batch)), strict=True):
                refuse(task, found)
            if sys.stderr.isatty() and (shown or time.monotonic() - began > SILENT_S):
                shown = True
                sys.stderr.write(f"\rchecked {start + len(batch):,} of {count:,} tasks")
                sys.stderr.flush()
    finally:
        if shown:
            sys.stderr.write("\n")


def unchecked(count: int, most: int) -> Sequence[str]:
    """A note where a file has more tasks than are checked before training."""
    if count <= most:
        return []
    return [
        f"the references of {most:,} of {count:,} tasks are run before training, evenly spread; "
        f"reward.references={count} runs all"
    ]
