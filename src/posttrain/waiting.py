"""Runs asynchronous code from code that is not."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def wait_for(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work` to its end in an event loop of its own.

    As `asyncio.run`, which on its way out writes the result of its task as text, to throw it away: a tenth of a second
    for the attempts of a step. So here the task has none.
    """
    results: list[Result] = []

    async def kept() -> None:
        results.append(await work)

    asyncio.run(kept())
    return results[0]
