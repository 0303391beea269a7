"""The run's side of the zygote: starts it, makes it fork and end workers, and starts another one if it died."""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posttrain.grading.workers.wire import frame
from posttrain.grading.workers.zygote import END, FORK, receive

_START = """
import json, socket, sys
sys.path[:] = json.loads(sys.argv[2])
from posttrain.grading.workers.zygote import serve
serve(socket.socket(fileno=int(sys.argv[1])))
"""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
STARTUP_SECONDS = 120.0


class Lost(Exception):
    """The zygote or a worker is gone, or could not be started."""


@dataclass(slots=True)
class Worker:
    """The run's handle of a worker process."""

    pid: int
    connection: socket.socket
    zygote: "Zygote"

    def end(self) -> int | None:
        """Kill it; returns its wait status, or None if that is unknown."""
        with contextlib.suppress(OSError):
            self.connection.close()
        try:
            status: int | None = self.zygote.order(END, {"pid": self.pid})["status"]
        except Lost:
            return None  # with the zygote go its workers
        return status

    def end_when_possible(self) -> None:
        """Kill it without waiting for a lock. For finalizers, which may run in the middle of another order."""
        with contextlib.suppress(OSError):
            self.connection.close()
        self.zygote.end_when_possible(self.pid)


class Zygote:
    """A zygote with some modules imported."""

    def __init__(self, preload: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._to_end: deque[int] = deque()
        """Workers that are to be ended as soon as nobody else gives orders."""
        self.owner = os.getpid()
        self._control, theirs = socket.socketpair()
        self._control.settimeout(STARTUP_SECONDS)
        environ = {**dict.fromkeys(_THREADS, "1"), **os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-P", "-c", _START, str(theirs.fileno()), json.dumps(import_path())]
        with theirs:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environ, stdin=subprocess.DEVNULL, start_new_session=True
            )
        try:
            self._control.sendall(frame({"preload": list(preload)}))
            answer = receive(self._control)
        except OSError:
            answer = None
        if answer is None or answer["failed"]:
            self.close()
            raise Lost(f"no process for graders could be started: {answer['failed'] if answer else 'it died'}")

    def fork(self, orders: Mapping[str, Any]) -> Worker:
        """A new worker. Raises `Lost` if it cannot be started."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                answer = self.order(FORK, orders, theirs.fileno())
            except Lost:
                ours.close()
                raise
        if "pid" not in answer:
            ours.close()
            raise Lost(f"no worker could be forked: {answer['failed']}")
        ours.setblocking(False)
        return Worker(answer["pid"], ours, self)

    def order(self, order: bytes, message: Mapping[str, Any], *descriptors: int) -> Any:
        """Send an order to the zygote; returns its answer. Raises `Lost`."""
        try:
            with self._lock:
                return self._exchange(order, message, *descriptors)
        finally:
            self._end_waiting()

    def _exchange(self, order: bytes, message: Mapping[str, Any], *descriptors: int) -> Any:
        try:
            socket.send_fds(self._control, [order], descriptors)
            self._control.sendall(frame(message))
            answer = receive(self._control)
        except OSError as error:
            answer, why = None, str(error)
        else:
            why = "it died"
        if answer is None:
            self._control.close()
            raise Lost(f"the process that graders are forked from does not answer: {why}")
        return answer

    def end_when_possible(self, pid: int) -> None:
        """End a worker now, or after the order that is being given, in the thread that gives it. It may be this thread,
        in which a garbage collection has come between: waiting for its lock would never end.
        """
        self._to_end.append(pid)
        self._end_waiting()

    def _end_waiting(self) -> None:
        while self._to_end and self._lock.acquire(blocking=False):
            try:
                while self._to_end:
                    self._exchange(END, {"pid": self._to_end.popleft()})
            except Lost:
                self._to_end.clear()  # with the zygote went its workers
            finally:
                self._lock.release()

    @property
    def alive(self) -> bool:
        """Whether this process can send it orders."""
        return self.owner == os.getpid() and self._control.fileno() >= 0 and self._process.poll() is None

    def close(self) -> None:
        """End it, and every worker with it."""
        self._control.close()
        if self.owner != os.getpid():
            return
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
        groups = sys.modules.get("posttrain.sandbox.cgroups")  # loaded with every grader that has a sandbox
        if groups is not None:
            groups.remove_ended()


_zygotes: dict[tuple[str, ...], Zygote] = {}
_making = threading.Lock()


def zygote(preload: tuple[str, ...]) -> Zygote:
    """The zygote of this process with these modules; a new one if there is none or it died."""
    with _making:
        found = _zygotes.get(preload)
        if found is None or not found.alive:
            found = _zygotes[preload] = Zygote(preload)
        return found


def import_path() -> list[str]:
    """The import path of this process, with the working directory as an absolute path."""
    return [os.getcwd() if entry == "" else entry for entry in sys.path]


@atexit.register
def _close_all() -> None:
    for found in _zygotes.values():
        found.close()
    _zygotes.clear()
