"""Event loops of the work that samples."""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

Result = TypeVar("Result")
_closing: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]] = WeakKeyDictionary()


def at_end(close: Callable[[], None]) -> None:
    """Have this called when `wait_for` ends in whose event loop this is called."""
    _closing.setdefault(asyncio.get_running_loop(), []).append(close)


def wait_for(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work` to its end in a new event loop: in this thread, or in another one if a loop runs here already, as in a
    notebook.

    Like `asyncio.run`, except that the task has no result. `asyncio.run` formats the result of its task as text and
    drops it, which takes a tenth of a second for the rollouts of a step.
    """
    results: list[Result] = []

    async def kept() -> None:
        try:
            results.append(await work)
        finally:
            for close in _closing.pop(asyncio.get_running_loop(), []):
                close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(kept())
    else:
        _run_in_thread(kept())
    return results[0]


def _run_in_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` in a thread with a new event loop. An interrupt cancels it and is raised when it has ended."""
    failed: list[BaseException] = []
    started: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = queue.SimpleQueue()
    ended = threading.Event()  # not `Thread.join`: after an interrupt it treats the thread as ended (bpo-45274)

    async def reported() -> None:
        task = asyncio.ensure_future(work)
        started.put((asyncio.get_running_loop(), task))
        await task

    def run() -> None:
        try:
            asyncio.run(reported())
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="posttrain-wait")
    try:
        thread.start()
        while not ended.wait(0.1):  # a signal that another thread received is handled here only between two waits
            pass
    except BaseException:
        with contextlib.suppress(RuntimeError, queue.Empty):  # it has ended meanwhile, or never started
            loop, task = started.get(timeout=5.0)
            loop.call_soon_threadsafe(task.cancel)
            ended.wait()
        raise
    if failed:
        raise failed[0]
