"""Groups in progress: rollouts as tasks of an event loop that stands still between two pieces.

Rollouts are asynchronous code, and any may be in progress over several steps. `Flight.go` lets pieces pass, and returns
when nothing goes on any more: every group has ended or waits for its next piece. Then weights may change.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar, TypeVarTuple

from posttrain.components.curricula import Pick
from posttrain.stages.rl.pieces import Gate, Progress, Waiting
from posttrain.types import Group

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_LOOK = 0.01
"""Seconds after which groups that wait for something else than a piece are checked again."""


class _Selector(selectors.DefaultSelector):
    """Calls back when a loop has nothing to do: it is about to sleep, with no timer."""

    def __init__(self) -> None:
        super().__init__()
        self.when_idle: Callable[[], bool] = lambda: False
        """Called then; whether it gave the loop something to do."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As its base."""
        if timeout is None and self.when_idle():
            timeout = 0
        return super().select(timeout)


class _Loop(asyncio.SelectorEventLoop):
    """Counts the work that it gives to threads, and states the context of who lets it go on.

    A group is in progress beside many steps. Its task has the context of its start, and its pieces are for the weights
    of now: `posttrain.engines.driver`.
    """

    def __init__(self, selector: _Selector) -> None:
        super().__init__(selector)
        self.in_threads = 0
        self.driver = copy_context()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], Result], *args: *Arguments
    ) -> "asyncio.Future[Result]":
        """As its base."""
        self.in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: "asyncio.Future[Any]") -> None:
        self.in_threads -= 1


@dataclass(eq=False, kw_only=True)
class Flown:
    """A group in progress."""

    progress: Progress
    pick: Pick
    begun: int
    """Steps that had been learned from when it was begun."""
    task: "asyncio.Task[list[Group]]"


class Flight:
    """All groups in progress."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.flown: list[Flown] = []
        """In the order of their start."""
        self._ended_first: list[asyncio.Task[list[Group]]] = []
        """In the order in which they ended."""
        self._selector = _Selector()
        self._loop = _Loop(self._selector)
        self._selector.when_idle = self._is_idle
        self._quiet: asyncio.Future[None] | None = None

    def begin(self, progress: Progress, pick: Pick, begun: int, work: Coroutine[Any, Any, list[Group]]) -> None:
        """Start a group. It does nothing until `go`."""
        flown = Flown(progress=progress, pick=pick, begun=begun, task=self._loop.create_task(work))
        flown.task.add_done_callback(self._ended_first.append)
        self.flown.append(flown)

    def go(self, chosen: Callable[[Waiting], bool]) -> tuple[list[Waiting], list[Flown]]:
        """Let pieces pass, and wait for all that follows from them; returns the pieces, and the groups that ended, by
        the tokens of their last piece, then in the order of their start. New groups come to their first piece before.
        """
        self._drive(self._still())
        for flown in self.flown:
            flown.progress.written = 0
        passed = self.gate.open(chosen)
        self._drive(self._still())
        self._ended_first.clear()
        ended = [flown for flown in self.flown if flown.task.done()]
        self.flown = [flown for flown in self.flown if not flown.task.done()]
        return passed, sorted(ended, key=lambda flown: (flown.progress.written, flown.progress.number))

    def flow(self, until: Callable[[], bool]) -> tuple[list[Waiting], list[Flown]]:
        """Let pieces pass as they are requested, until a group has ended, or `until` is true. What is under way then
        goes on as far as nothing here is needed. Returns what was written since the last call, and the groups that
        ended, in the order in which they did.
        """
        self.gate.passed += self.gate.open(lambda asked: True)
        self.gate.flows = True
        self._drive(self._first_end(until))
        self.gate.flows = False
        return self._flown()

    def land(self) -> tuple[list[Waiting], list[Flown]]:
        """Wait for what is under way, and let no further piece pass; returns what `flow` does."""
        if self.flown:
            self._drive(self._still())
        return self._flown()

    def _flown(self) -> tuple[list[Waiting], list[Flown]]:
        written = [asked for asked in self.gate.passed if asked.name in asked.progress.answers]
        self.gate.passed = [asked for asked in self.gate.passed if asked not in written]
        ended = [flown for task in self._ended_first for flown in self.flown if flown.task is task]
        self._ended_first.clear()
        self.flown = [flown for flown in self.flown if flown not in ended]
        return written, ended

    def close(self) -> None:
        """End all groups."""
        if self._loop.is_closed():
            return
        for flown in self.flown:
            flown.task.cancel()
        if self.flown:
            self._drive(self._ended())
        self._loop.close()

    async def _still(self) -> None:
        """Return when nothing goes on, and something waits for a piece or has ended."""
        while True:
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet
            if self.gate.waiting or not self.flown or any(flown.task.done() for flown in self.flown):
                return
            await asyncio.sleep(_LOOK)

    async def _first_end(self, until: Callable[[], bool]) -> None:
        while not self._ended_first and not until():
            tasks = [flown.task for flown in self.flown]
            await (asyncio.wait(tasks, timeout=_LOOK, return_when="FIRST_COMPLETED") if tasks else asyncio.sleep(_LOOK))

    async def _ended(self) -> None:
        await asyncio.gather(*(flown.task for flown in self.flown), return_exceptions=True)

    def _is_idle(self) -> bool:
        """Whether nothing is under way; wakes `_still`."""
        if self._quiet is None or self._quiet.done() or self.gate.busy or self._loop.in_threads:
            return False
        self._quiet.set_result(None)
        return True

    def _drive(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the loop to the end of `work`: in this thread, or in another one if a loop runs here already."""
        self._loop.driver = copy_context()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop.run_until_complete(work)
            return
        failed: list[BaseException] = []

        def run() -> None:
            try:
                self._loop.run_until_complete(work)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run, name="posttrain-stream")
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
