"""The process that workers are forked from, and the worker.

The zygote has one thread, imports the modules of its first message, and then answers two orders on its control socket:
fork a worker that serves the attached socket, or end a worker and return its wait status. When the control socket
closes, because the run ended or was killed, it ends every worker and exits. With a worker end the processes that it
started, those in sessions of their own too (on Linux).
"""

import contextlib
import ctypes
import fcntl
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Never

from posttrain.grading.workers.wire import HEADER, frame, parse

FORK, END = b"F", b"E"
PATIENCE = 10.0
"""Seconds to wait for a killed process."""
NO_SPACE = 77
"""Exit status of a worker that had no memory left to answer with."""

_inside = False


def inside_worker() -> bool:
    """Whether this process is a worker, so that a grader need not be put into another one."""
    return _inside


def serve(control: socket.socket) -> None:
    """Run as the zygote until the control socket closes."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _adopt()
    _end_with(control)
    orders = receive(control)
    if orders is None:
        return
    failed = _preload(orders["preload"])
    gc.collect()
    gc.freeze()
    control.sendall(frame({"failed": failed}))
    workers: set[int] = set()
    try:
        while _serve_one(control, workers):
            pass
    finally:
        for pid in list(workers):
            _end(pid)
        _end_left_over(set())


def _adopt() -> None:
    """Become the parent of what the descendants of this process leave behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def children() -> list[int]:
    """The child processes of this one; none where the system does not list them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _end_left_over(workers: set[int]) -> None:
    """Kill what workers that ended left behind: it has become this process's, and its children do when it ends."""
    until = time.monotonic() + PATIENCE
    while (left := set(children()) - workers) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.0005)


def _end_with(control: socket.socket) -> None:
    """Have the kernel send a signal when the control socket closes, so that a zygote which is busy ends at once too.

    Not the parent-death signal: that comes when the *thread* ends that started the process.
    """

    def look(*_: object) -> None:
        gone = select.poll()
        gone.register(control, 0)
        if gone.poll(0):
            signal.signal(signal.SIGIO, signal.SIG_IGN)
            sys.exit(0)

    signal.signal(signal.SIGIO, look)
    fcntl.fcntl(control, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(control, fcntl.F_SETFL, fcntl.fcntl(control, fcntl.F_GETFL) | os.O_ASYNC)
    look()


def _preload(modules: list[str]) -> str:
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            return f"cannot import {module}: {type(error).__name__}: {error}"
    return ""


def _serve_one(control: socket.socket, workers: set[int]) -> bool:
    order, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    message = receive(control) if order else None
    if message is None:
        return False
    if order == FORK:
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            control.sendall(frame({"failed": str(error)}))
            os.close(descriptors[0])
            return True
        if pid == 0:
            control.close()
            _be_worker(socket.socket(fileno=descriptors[0]), message, zygote)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # both processes do this, in either order
        os.close(descriptors[0])
        workers.add(pid)
        control.sendall(frame({"pid": pid}))
    else:
        workers.discard(message["pid"])
        status = _end(message["pid"])
        _end_left_over(workers)
        control.sendall(frame({"status": status}))
    return True


def _end(pid: int) -> int | None:
    """Kill a worker and its child processes; returns its wait status, from before if it was dead already."""
    # No other code waits for it, so its process id is not reused until the wait below.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if done:
            return status
        if time.monotonic() > until:
            return None
        time.sleep(0.0005)


def _be_worker(connection: socket.socket, orders: Mapping[str, Any], zygote: int) -> Never:
    """Load the grader and serve it; never returns."""
    status = 1
    try:
        _die_with(zygote)
        _settle(orders)
        _work(connection, orders)
        status = 0
    except MemoryError:
        status = NO_SPACE
    except (BrokenPipeError, ConnectionResetError):
        status = 0
    finally:
        os._exit(status)


def _settle(orders: Mapping[str, Any]) -> None:
    """Take over the run's folder, import path and environment, and set the limits."""
    global _inside
    _inside = True
    _adopt()
    os.setpgid(0, 0)
    sys.stdin = open(os.devnull)  # noqa: SIM115  for the life of the worker
    os.dup2(sys.stdin.fileno(), 0)
    os.environ.update(orders["environ"])
    sys.path[:] = orders["path"]
    with contextlib.suppress(OSError):
        os.chdir(orders["folder"])
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # the kernel's memory killer takes this before the run
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if orders["memory_mib"] is not None:
        limit = int(orders["memory_mib"]) << 20
        # Not RLIMIT_AS: it counts what is only reserved, and CUDA reserves terabytes.
        which = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (limit, limit))


def _die_with(zygote: int) -> None:
    """Be killed when the zygote ends, which has one thread; its number is from before the fork, or it could have
    ended, and another have become the parent, before it was requested.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != zygote:
        os._exit(0)


def _work(connection: socket.socket, orders: Mapping[str, Any]) -> None:
    """Answer calls one by one until the socket closes."""
    from posttrain.errors import UserError

    try:
        module, _, name = orders["grader"].partition(":")
        grader = getattr(importlib.import_module(module), name)(orders["argument"])
    except (Exception, SystemExit) as error:
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        connection.sendall(frame({"failed": text}))
        return
    connection.sendall(frame({"failed": ""}))
    while (call := receive(connection)) is not None:
        connection.sendall(_answer(grader, call))


def _answer(grader: Callable[[Any], Any], call: Mapping[str, Any]) -> bytes:
    started = time.process_time()
    # The kernel ends the process by SIGPROF when the time is used up.
    signal.setitimer(signal.ITIMER_PROF, call["cpu_seconds"])
    try:
        answer = {"how": "ok", "value": grader(call["argument"])}
        written = frame({**answer, "cpu_seconds": time.process_time() - started})
    except MemoryError:
        raise
    except BaseException as error:  # exit(), and libraries whose time limits are no Exception
        text = f"{type(error).__name__}: {str(error)[:500]}"
        written = frame({"how": "raised", "explanation": text, "cpu_seconds": time.process_time() - started})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return written


def receive(connection: socket.socket) -> Any:
    """The next message; None when the other side is gone."""
    header = _exactly(connection, HEADER.size)
    content = None if header is None else _exactly(connection, HEADER.unpack(header)[0])
    return None if content is None else parse(content)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        got = connection.recv(min(size - len(parts), 1 << 20))
        if not got:
            return None
        parts += got
    return bytes(parts)
