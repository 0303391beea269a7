"""Shells that stay in their box from one command to the next.

A box takes several times as long to make as most commands take to run, so a shell has one for all of its commands:
files, variables and the folder last. Limits are those of each command, as for a job. Between two commands nothing runs:
what a command left running is ended with it, and the shell itself is stopped until the next one. A command that exceeds
a limit, or ends the shell, ends the box; later commands are not run, and have the same outcome without output.

At most `MOST_OPEN` boxes are open at a time. A shell whose box was closed for another, or failed, gets a new one, in
which its commands before are run again without their output.
"""

import contextlib
import os
import re
import selectors
import shlex
import signal
import threading
import time
from asyncio import wrap_future
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, ParamSpec, Protocol, TypeVar

from posttrain.sandbox import supervise
from posttrain.sandbox.job import Job, Limits, Outcome, Result
from posttrain.sandbox.launch import READY, Lane, Tier, python_job
from posttrain.sandbox.processes import Spawned, descendants
from posttrain.sandbox.warm import ForkServers

P = ParamSpec("P")
T = TypeVar("T")
MOST_OPEN: Final = 64
"""Boxes that stay open between commands, of all shells of a pool."""
RETRIES: Final = 3
"""Times that a command is run whose sandbox fails."""
SETTLE_S: Final = 5.0
"""Seconds in which what a command left running must have ended."""
FORKED: Final = b"""import os, _signal
for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(ignored, _signal.SIG_DFL)
os.environ.pop("LD_LIBRARY_PATH", None)
os.execv("/bin/sh", ["sh"])
"""
"""Turns a forked Python job into a shell as any program starts it."""
COMMAND: Final = """eval {command} 2>&1 </dev/null; printf '{number} %s\\n' "$?" >&2\n"""
"""One command, and the line on standard error that has its number and exit code. Commands do not get the shell's
standard error, nor its input; one that got hold of them would confuse its own shell only.
"""


class InThread(Protocol):
    """Calls a function in another thread."""

    def __call__(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> "Future[T]":
        """The future result."""
        ...


class Shell:
    """A shell; one command at a time."""

    def __init__(self, boxes: "Boxes", limits: Limits, setup: str, commands: int, in_thread: InThread) -> None:
        self._limits, self._setup, self._commands = limits, setup, commands
        self._boxes, self._in_thread = boxes, in_thread
        self._ran: list[str] = []
        self._busy = threading.Lock()
        self.over: Result | None = None
        """The end of the shell, by itself or at a limit, without output; None while it takes commands."""

    async def run(self, command: str) -> Result:
        """Runs a command of ``sh``, without blocking the event loop; its standard error is in its output."""
        return await wrap_future(self._in_thread(self._run, command))

    async def close(self) -> None:
        """Ends the box, after a command that still runs. The shell could go on in a new one."""
        await wrap_future(self._in_thread(self._close))

    def _run(self, command: str) -> Result:
        with self._busy:
            result = self._tried(command)
            self._ran.append(command)
        return result

    def _close(self) -> None:
        with self._busy:
            self._boxes.close_of(self)

    def _tried(self, command: str) -> Result:
        for retry in range(RETRIES):
            if retry:
                time.sleep(0.05 * 4**retry)
            result = self.over or self._once(command)
            if result.outcome != "sandbox_error":
                break
        return result

    def _once(self, command: str) -> Result:
        box = None
        try:
            box = self._boxes.taken(self)
            waiting = [command]
            if box is None:
                box, waiting = self._boxes.opened(self._limits, self._commands), [self._setup, *self._ran, command]
            for text in waiting:
                result = box.run(text)
                if box.over:
                    break
        except OSError as error:
            if box is not None:
                self._boxes.end(box)
            return Result(outcome="sandbox_error", explanation=f"{type(error).__name__}: {error}")
        if not box.over:
            self._boxes.keep(self, box)
        else:
            self._boxes.end(box)
            if result.outcome != "sandbox_error":
                self.over = replace(result, stdout=b"", stderr=b"", cpu_s=0.0, wall_s=0.0)
        return result


class Boxes:
    """The open boxes of the shells of a pool, those without a running command in the order of their last use."""

    def __init__(self, tier: Tier, lane: Callable[[], Lane], *, forks: bool) -> None:
        """`lane` gives new lanes, which are used again; `forks` is whether Python jobs can be forked."""
        self._tier, self._lane, self._forks = tier, lane, forks
        self._servers = ForkServers()
        self._free: list[Lane] = []
        self._idle: dict[Shell, Box] = {}
        self._changing = threading.Lock()

    def taken(self, shell: Shell) -> "Box | None":
        """The box of a shell, which is no longer idle; None where it has none."""
        with self._changing:
            return self._idle.pop(shell, None)

    def opened(self, limits: Limits, commands: int) -> "Box":
        """A new box with a shell for this many commands. Raises `OSError` where that fails."""
        with self._changing:
            lane = self._free.pop() if self._free else self._lane()
        job = python_job(FORKED, warm=True) if self._forks else Job(command=("sh",))
        fork, all_of_them = (
            (self._servers.fork if self._forks else None),
            replace(limits, cpu_s=limits.cpu_s * commands),
        )
        try:
            started = supervise.start(job, all_of_them, self._tier, lane, fork)
        except OSError:
            self._free.append(lane)
            raise
        started.limits = limits
        return Box(started)

    def keep(self, shell: Shell, box: "Box") -> None:
        """The box is idle; that of the shell that was used least recently is closed where there are too many."""
        with self._changing:
            self._idle[shell] = box
            old = self._idle.pop(next(iter(self._idle))) if len(self._idle) > MOST_OPEN else None
        if old is not None:
            self.end(old)

    def close_of(self, shell: Shell) -> None:
        """Ends the box of a shell, if it has one."""
        if (box := self.taken(shell)) is not None:
            self.end(box)

    def end(self, box: "Box") -> None:
        """Ends a box, whose lane is free then."""
        box.close()
        self._free.append(box.started.lane)

    def close(self) -> None:
        """Ends all boxes, and removes the lanes' groups."""
        while self._idle:
            self.end(self._idle.popitem()[1])
        self._servers.close()
        while self._free:
            if (group := self._free.pop().group) is not None:
                group.remove()


class Box:
    """A box in which a shell waits for commands."""

    def __init__(self, started: supervise.Started) -> None:
        self.started = started
        self.over = False
        """Whether it has ended, with all of its processes."""
        self._own: set[int] = set()
        """The processes of the isolation, and the shell, once the first command has ended."""
        self._shell = -1
        self._number = 0
        self._left = memoryview(b"")
        self._selector = selectors.DefaultSelector()
        self._selector.register(started.child.end, selectors.EVENT_READ, "end")
        for name, pipe in (("stdout", started.child.stdout), ("stderr", started.child.stderr)):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, name)
        os.set_blocking(started.child.stdin.fileno(), False)

    def run(self, command: str) -> Result:
        """Runs a command. Raises `OSError` where the isolation fails."""
        begun, started = time.monotonic(), self.started
        if started.lane.group is not None:
            started.kills_before, started.cpu_before = (
                started.lane.group.killed_for_memory(),
                started.lane.group.cpu_s(),
            )
        started.seen_cpu_s = 0.0
        for name, kept in (("stdout", b""), ("stderr", READY if self._own else b"")):
            started.output[name][:] = kept
        self._number += 1
        self._left = memoryview(COMMAND.format(command=shlex.quote(command), number=self._number).encode())
        self._signal(signal.SIGCONT)
        stopped, ended = self._attend(begun + started.limits.wall_s)
        if not ended and stopped is None:
            stopped = self._settled()
        if ended or stopped is not None:
            supervise.end(started)
            result, self.over = supervise.result(started, stopped), True
        else:
            code = int(self._answer() or b"1")
            result = Result(outcome="nonzero" if code else "ok", stdout=bytes(started.output["stdout"]), exit_code=code)
        return replace(result, wall_s=time.monotonic() - begun)

    def close(self) -> None:
        """Ends all processes, and removes the box."""
        if not self.over:
            self.over = True
            supervise.end(self.started)
        self._selector.close()
        if self._shell >= 0:
            os.close(self._shell)
            self._shell = -1

    def _attend(self, deadline: float) -> tuple[Outcome | None, bool]:
        """Feeds and reads until the command or the shell has ended; the limit exceeded, if any, and whether it is the
        shell that has ended.
        """
        started, next_sample = self.started, time.monotonic() + supervise.SAMPLE_S
        while True:
            if self._left:
                self._left = supervise.fed(started.child.stdin, self._left)
            ready = self._selector.select(supervise.SAMPLE_S)
            if not all(supervise.serve(started, key, self._selector) for key, _ in ready if key.data != "end"):
                return "output_limit", False
            if any(key.data == "end" for key, _ in ready):
                return None, True
            if self._answer() is not None:
                return None, False
            now = time.monotonic()
            if now > next_sample or now > deadline:
                next_sample = now + supervise.SAMPLE_S
                if broken := supervise.exceeded(started, late=now > deadline):
                    return broken, False

    def _answer(self) -> bytes | None:
        """The exit code of the command, once it is there."""
        text = self.started.output["stderr"]
        found = text.startswith(READY) and re.search(rb"^%d (\d+)\n" % self._number, text[len(READY) :], re.MULTILINE)
        return found.group(1) if found else None

    def _settled(self) -> Outcome | None:
        """Stops the shell, ends what else runs, reads the rest of the output; the limit exceeded, if any."""
        started, output = self.started, self.started.output["stdout"]
        if not self._own:
            self._note_own()
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + SETTLE_S
        while more := self._alive() - self._own:
            for process in more:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            if time.monotonic() > deadline:
                return "timeout_wall"
            time.sleep(0.0005)
        size = -1
        while size < len(output) <= started.limits.output_kb << 10:
            size = len(output)
            supervise.read(started.child.stdout.fileno(), output)
        if len(output) > started.limits.output_kb << 10:
            return "output_limit"
        group = started.lane.group
        if group is not None and group.killed_for_memory() > started.kills_before:
            return "memory"
        return supervise.exceeded(started, late=False)

    def _note_own(self) -> None:
        """Notes which processes are there without a command: one that has no other below it is the shell."""
        self._own = self._alive()
        last = [process for process in self._own if len(descendants(process)) == 1]
        if len(last) != 1:
            raise OSError(f"a shell was expected in the box, and {len(last)} programs are there")
        self._shell = os.pidfd_open(last[0])

    def _alive(self) -> set[int]:
        """The processes in the box, those of the isolation included."""
        if self.started.lane.group is not None:
            return self.started.lane.group.members()
        child = self.started.child
        return {*descendants(child.pid)} if isinstance(child, Spawned) else set()

    def _signal(self, number: signal.Signals) -> None:
        if self._shell >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._shell, number)
