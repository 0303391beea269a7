"""Threads of the server: the model is sampled in one, requests are parsed and tokenized in another.

So the event loop that answers connections waits for neither.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EngineThread:
    """An event loop in a thread of its own. It starts with the first work, and ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Start work there, and give a future of the calling loop; to cancel it cancels the work."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running_loop()))

    async def started(self) -> None:
        """Return when all work submitted before has run until it first waits, so that what it refused is known.

        A loop begins tasks, and reports their ends, in the order in which they came.
        """
        await self.submit(_nothing())

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="posttrain-engine", daemon=True).start()
            return self._loop


class Worker:
    """A thread that calls functions one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._started = False
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()

    async def call(self, function: Callable[[], T]) -> T:
        """The result of the function; one that is cancelled before it starts is not called."""
        return await asyncio.wrap_future(self.start(function))

    def start(self, function: Callable[[], T]) -> Future[T]:
        """The same from any thread, as a future that nobody needs to wait for."""
        with self._lock:
            if not self._started:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._started = True
        future: Future[T] = Future()
        self._jobs.put((future, function))
        return future

    def _run(self) -> None:
        while True:
            future, function = self._jobs.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # a tokenizer's panic is no Exception
                    future.set_exception(error)
            del future, function  # nothing of a request is held until the next one


async def _nothing() -> None:
    """Work that is over at its first turn."""
