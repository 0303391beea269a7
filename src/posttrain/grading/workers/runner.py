"""The runner: calls a grader in workers, several at once, and replaces those that died."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from posttrain.grading.workers._processes import Lost, Worker, import_path, zygote
from posttrain.grading.workers.outcomes import Limits, Outcome
from posttrain.grading.workers.wire import HEADER, LARGEST, frame, number, parse
from posttrain.grading.workers.zygote import NO_SPACE

LOADING_SECONDS = 600.0
"""On the clock, for loading a grader."""
CHUNK = 1 << 16
"""Most bytes that are received at once; a larger buffer would be mapped and given back for each answer."""
ATTEMPTS = 3
"""How often a call is started whose worker was lost through no fault of the grader."""


class Elsewhere(Protocol):
    """Other machines that call graders for this process."""

    async def grade(
        self, orders: Mapping[str, Any], preload: tuple[str, ...], limits: tuple[Limits, Limits], argument: Any
    ) -> Outcome | None:
        """The outcome of a call, with the limits of the grader and of the call; None where none of them is there."""
        ...


elsewhere: Elsewhere | None = None
"""Set while there are some: a call of a `Runner` goes there, a `Session` stays here."""


class Unstarted(Exception):
    """The grader cannot be loaded; the message is the reason."""


@dataclass(slots=True)
class _Slots:
    """How many calls of one event loop may run, and how many run or wait."""

    free: asyncio.Semaphore
    users: int = 0


class Runner:
    """Warm workers for one grader."""

    def __init__(
        self,
        grader: str,
        argument: Any = None,
        *,
        limits: Limits | None = None,
        preload: Sequence[str] = (),
        workers: int | None = None,
    ) -> None:
        """`grader` is ``module:function``; the function takes `argument` and gives what is called. Nothing starts yet.

        `preload` are modules that workers find imported; `workers` is how many calls run at once, by default one a
        processor.
        """
        self.limits = limits or Limits()
        self.workers = workers or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else "1" * 4)
        self._preload = tuple(preload)
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._slots: dict[asyncio.AbstractEventLoop, _Slots] = {}
        self._orders = {
            "grader": grader,
            "argument": argument,
            "memory_mib": self.limits.memory_mib,
            "folder": os.getcwd(),
            "path": import_path(),
            "environ": dict(os.environ),
        }
        self._finalizer = weakref.finalize(self, _end_all, self._idle)

    @classmethod
    def of(cls, orders: Mapping[str, Any], preload: Sequence[str], limits: Limits) -> "Runner":
        """The runner of another machine's process, with its folder, import path and environment."""
        made = cls(orders["grader"], orders["argument"], limits=limits, preload=preload)
        made._orders = dict(orders)
        return made

    def run_now(self, *arguments: Any, limits: Limits | None = None) -> list[Outcome]:
        """`run`, for callers that cannot wait; where an event loop runs already, it stands still meanwhile."""
        found: list[Outcome] = []

        def run() -> None:
            found.extend(asyncio.run(self.run(arguments, limits)))

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            run()
        else:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        return found

    async def run(self, arguments: Sequence[Any], limits: Limits | None = None) -> list[Outcome]:
        """Call the grader with each argument; one outcome each, in order. `limits` may differ, but for memory."""
        return list(await asyncio.gather(*(self.call(argument, limits) for argument in arguments)))

    async def call(self, argument: Any, limits: Limits | None = None) -> Outcome:
        """Call the grader once."""
        limits = limits or self.limits
        try:
            message = frame({"argument": argument, "cpu_seconds": limits.cpu_seconds})
        except (TypeError, ValueError, RecursionError) as error:
            return Outcome(how="infra_error", explanation=str(error))
        if elsewhere is not None:
            found = await elsewhere.grade(self._orders, self._preload, (self.limits, limits), argument)
            if found is not None:
                return found
        async with self._slot():
            attempts = 0
            while True:
                attempts += 1
                outcome = await self._try(message, limits)
                if outcome.how != "infra_error" or attempts == ATTEMPTS:
                    return replace(outcome, attempts=attempts)

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait until one call more may run. A step has an event loop of its own: with its last call goes what is kept
        of it, since a semaphore for which a call has waited holds its loop, and all that the loop holds.
        """
        loop = asyncio.get_running_loop()
        slots = self._slots.setdefault(loop, _Slots(asyncio.Semaphore(self.workers)))
        slots.users += 1
        try:
            async with slots.free:
                yield
        finally:
            slots.users -= 1
            if not slots.users:
                del self._slots[loop]

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator["Session"]:
        """A worker for several calls in a row, that share what the grader keeps. Raises `Unstarted` or `Lost`."""
        async with self._slot():
            session = Session(self._take() or await self._start(), self.limits)
            try:
                yield session
            except BaseException:
                session.end()  # its state is unknown
                raise
            finally:
                session.leave()
                if session.alive:
                    with self._lock:
                        self._idle.append(session.worker)

    def close(self) -> None:
        """End the workers that wait for work."""
        self._finalizer()

    async def _try(self, message: bytes, limits: Limits) -> Outcome:
        """One attempt, in an idle worker or a new one."""
        try:
            worker = self._take() or await self._start()
        except Unstarted as error:
            return Outcome(how="unstarted", explanation=str(error))
        except Lost as error:
            return Outcome(how="infra_error", explanation=str(error))
        started = time.monotonic()
        try:
            arriving = _arriving(worker.connection)
            answer = await _exchange(worker.connection, arriving, message, limits.wall_seconds)
        except TimeoutError:
            worker.end()
            outcome = Outcome(
                how="timeout_wall",
                explanation=f"took longer than {limits.wall_seconds:g} s on the clock, mostly waiting",
            )
        except (OSError, EOFError, ValueError) as error:
            outcome = _death(worker.end(), limits, error)
        except BaseException:  # cancelled: the answer is not awaited, and must not be the next call's
            worker.end()
            raise
        else:
            with self._lock:
                self._idle.append(worker)
            outcome = answer
        return replace(outcome, wall_seconds=time.monotonic() - started)

    def _take(self) -> Worker | None:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.zygote.alive:
                    return worker
        return None

    async def _start(self) -> Worker:
        """A new worker with the grader loaded. Raises `Unstarted` or `Lost`."""
        try:
            source = zygote(self._preload)
        except Lost as error:
            raise Unstarted(str(error)) from None
        worker = source.fork(self._orders)
        try:
            async with asyncio.timeout(LOADING_SECONDS):
                answer = await _receive(_arriving(worker.connection))
        except TimeoutError:
            worker.end()
            raise Unstarted(f"loading it took longer than {LOADING_SECONDS:g} s") from None
        except (OSError, EOFError, ValueError) as error:
            death = _death(worker.end(), self.limits, error)
            if death.how == "infra_error":
                raise Lost(death.explanation) from None
            raise Unstarted(f"while it was loaded: {death.explanation}") from None
        except BaseException:
            worker.end()
            raise
        if answer["failed"]:
            worker.end()
            raise Unstarted(str(answer["failed"]))
        return worker


class Session:
    """One worker, until it dies or is given back."""

    def __init__(self, worker: Worker, limits: Limits) -> None:
        self.worker, self._limits = worker, limits
        self.alive = True
        self._answers = _Answers(worker.connection)

    async def call(self, argument: Any) -> Outcome:
        """Call the grader once. A call that ends the worker ends the session; nothing is tried again."""
        if not self.alive:
            return Outcome(how="infra_error", explanation="its worker has ended")
        limits = self._limits
        try:
            message = frame({"argument": argument, "cpu_seconds": limits.cpu_seconds})
        except (TypeError, ValueError, RecursionError) as error:
            return Outcome(how="infra_error", explanation=str(error))
        try:
            return await _exchange(self.worker.connection, self._answers.next, message, limits.wall_seconds)
        except TimeoutError:
            self.end()
            return Outcome(how="timeout_wall", explanation=f"took longer than {limits.wall_seconds:g} s on the clock")
        except (OSError, EOFError, ValueError) as error:
            return _death(self.end(), limits, error)
        except BaseException:
            self.end()
            raise

    def end(self) -> int | None:
        """Kill the worker; returns its wait status, or None if that is unknown or it was killed already."""
        self.leave()
        if not self.alive:
            return None
        self.alive = False
        return self.worker.end()

    def leave(self) -> None:
        """Have the event loop forget the worker, which another one may use next."""
        self._answers.close()


class _Answers:
    """What a worker sends. The event loop keeps its socket between calls, which is most of what an answer costs."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._loop = connection, asyncio.get_running_loop()
        self._kept = False
        self._waiting: asyncio.Future[bytes] | None = None

    async def next(self) -> bytes:
        """The bytes that come next; none at the end. Raises `OSError`."""
        if not self._kept:
            self._loop.add_reader(self._connection.fileno(), self._ready)
            self._kept = True
        self._waiting = self._loop.create_future()
        return await self._waiting

    def close(self) -> None:
        """Have the loop forget the socket, which must be open still."""
        if self._kept:
            self._loop.remove_reader(self._connection.fileno())
            self._kept = False

    def _ready(self) -> None:
        waiting = self._waiting
        if waiting is None or waiting.done():  # an end, or bytes, that no call awaits
            self.close()
            return
        try:
            waiting.set_result(self._connection.recv(CHUNK))
        except BlockingIOError:
            return
        except OSError as error:
            waiting.set_exception(error)


def _death(status: int | None, limits: Limits, error: Exception) -> Outcome:
    """The cause of a worker's death, from its wait status."""
    if status is None:
        return Outcome(how="infra_error", explanation=f"the worker was lost ({type(error).__name__})")
    if os.WIFEXITED(status):
        if os.WEXITSTATUS(status) == NO_SPACE:
            text = f"took more memory than the {limits.memory_mib} MiB that it may have"
            return Outcome(how="memory", explanation=text)
        return Outcome(how="crashed", explanation=f"its process ended with exit status {os.WEXITSTATUS(status)}")
    killer = os.WTERMSIG(status)
    if killer in (signal.SIGPROF, signal.SIGXCPU):
        text = f"took longer than {limits.cpu_seconds:g} s of processor time"
        return Outcome(how="timeout_cpu", explanation=text, cpu_seconds=limits.cpu_seconds)
    if killer == signal.SIGKILL:
        return Outcome(how="infra_error", explanation="its process was killed from outside (SIGKILL; out of memory?)")
    return Outcome(how="crashed", explanation=f"its process crashed ({signal.Signals(killer).name})")


def _arriving(connection: socket.socket) -> Callable[[], Awaitable[bytes]]:
    return partial(asyncio.get_running_loop().sock_recv, connection, CHUNK)


async def _exchange(
    connection: socket.socket, arriving: Callable[[], Awaitable[bytes]], message: bytes, seconds: float
) -> Outcome:
    """Send a call and read its answer. Raises `TimeoutError`, or `OSError` or `EOFError` where the worker died."""
    async with asyncio.timeout(seconds):
        await asyncio.get_running_loop().sock_sendall(connection, message)
        answer = await _receive(arriving)
    return Outcome(
        how="ok" if answer.get("how") == "ok" else "raised",
        value=answer.get("value"),
        explanation=str(answer.get("explanation", "")),
        cpu_seconds=number(answer.get("cpu_seconds")),
    )


async def _receive(arriving: Callable[[], Awaitable[bytes]]) -> dict[str, Any]:
    content = bytearray()
    needed = HEADER.size
    while len(content) < needed:
        got = await arriving()
        if not got:
            raise EOFError
        content += got
        if needed == HEADER.size and len(content) >= needed:
            needed += HEADER.unpack(content[: HEADER.size])[0]
            if needed > LARGEST:
                raise ValueError("the answer is too long")
    answer = parse(bytes(content[HEADER.size :]))
    if not isinstance(answer, dict):
        raise ValueError("the answer is none")
    return answer


def _end_all(workers: list[Worker]) -> None:
    while workers:
        worker = workers.pop()
        with contextlib.suppress(Exception):
            if worker.zygote.alive:
                worker.end_when_possible()
