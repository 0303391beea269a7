"""Forks warm Python jobs from an isolated interpreter, the fork server (`fork_server.py`).

An interpreter takes ten times as long to start as to fork. The fork server is started by bubblewrap with the same
view of the machine as the jobs, without network and secrets, and keeps the capabilities of root that isolating them
takes. It takes requests from this process only and reads nothing that a job wrote, so every job is a copy of a process
without any state of other jobs.
"""

import contextlib
import marshal
import os
import resource
import socket
import threading
from pathlib import Path
from typing import IO, Final

from posttrain.sandbox import filters, fork_server
from posttrain.sandbox.job import Job, Limits
from posttrain.sandbox.launch import (
    PATH,
    PYTHON_FLAGS,
    SHARED_MEMORY,
    Lane,
    Tier,
    fork_server_command,
    in_memory,
    limits_by_letter,
)
from posttrain.sandbox.processes import Spawned, Usage

LETTERS: Final = {
    "c": (resource.RLIMIT_CORE, 1),
    "n": (resource.RLIMIT_NOFILE, 1),
    "t": (resource.RLIMIT_CPU, 1),
    "f": (resource.RLIMIT_FSIZE, 512),
}
"""What the letters of `limits_by_letter` mean for the kernel, and their units."""


def no_forks(tier: Tier) -> str:
    """Why a tier cannot fork jobs; empty where it can. Control groups count what a fork uses, and only root can become
    another user.
    """
    return "" if tier == "cgroup" and os.getuid() == 0 else "only root forks jobs, and only in tier 'cgroup'"


def can_fork(job: Job) -> bool:
    """Whether a job may be forked: a warm one of `python_job`."""
    return job.warm and not job.files and job.command[1:-1] == PYTHON_FLAGS


def _kernel_limits(limits: Limits) -> list[tuple[int, int]]:
    """Kind and value of each limit of a single process; one process more, for the isolation."""
    values = [(LETTERS[letter][0], value * LETTERS[letter][1]) for letter, value in limits_by_letter(limits).items()]
    return [*values, (resource.RLIMIT_NPROC, limits.processes + 1)]


class Fork:
    """A forked job, with this side's ends of its pipes."""

    def __init__(self, server: "ForkServer") -> None:
        self.server = server
        pairs = [os.pipe() for _ in range(4)]
        pairs[0] = pairs[0][::-1]
        self.theirs = [theirs for _, theirs in pairs]
        self.stdin: IO[bytes] = os.fdopen(pairs[0][0], "wb", 0)
        self.stdout: IO[bytes] = os.fdopen(pairs[1][0], "rb", 0)
        self.stderr: IO[bytes] = os.fdopen(pairs[2][0], "rb", 0)
        self.end = pairs[3][0]
        os.set_blocking(self.end, False)

    def hand_over(self) -> None:
        """Closes the job's ends of the pipes."""
        while self.theirs:
            os.close(self.theirs.pop())

    def usage(self) -> Usage:
        """Zero: the control group of a forked job counts its use."""
        return Usage(0.0, 0)

    def reap(self) -> tuple[int | None, float]:
        """Its exit code, None where it ended without one. Emptying its control group kills the rest."""
        try:
            code = os.read(self.end, 1)
        except BlockingIOError:
            code = b""
        return (code[0] if code else None), 0.0

    def close(self) -> None:
        """Close this side's ends."""
        self.hand_over()
        os.close(self.end)
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


MOST_FORK_SERVERS: Final = 2
"""Fork servers that a slot keeps: graders of two kinds may alternate."""


class ForkServers:
    """The fork servers of a slot, or of several."""

    def __init__(self) -> None:
        self.kept: list[ForkServer] = []
        """The last used one at the end."""
        self._changing = threading.Lock()

    def fork(self, job: Job, limits: Limits, lane: Lane) -> Fork:
        """Forks a job from the server of its template. Raises `OSError` where that fails; the next has a new server."""
        with self._changing:
            server = self._server(job)
            try:
                return server.fork(limits, lane)
            except OSError:
                self._end(server)
                raise

    def end(self, failed: Fork) -> str:
        """Ends the fork server of a job that failed, so that the next job gets a new one; its last message. Nothing is
        done where it was ended for another job.
        """
        with self._changing:
            return self._end(failed.server) if failed.server in self.kept else ""

    def _end(self, server: "ForkServer") -> str:
        self.kept.remove(server)
        message = server.last_message()
        server.close()
        return message

    def close(self) -> None:
        """Ends all, with their jobs."""
        with self._changing:
            while self.kept:
                self.kept.pop().close()

    def _server(self, template: Job) -> "ForkServer":
        found = next((server for server in self.kept if server.job == template), None)
        if found is None:
            while len(self.kept) >= MOST_FORK_SERVERS:
                self.kept.pop(0).close()
            found = ForkServer(template)
        else:
            self.kept.remove(found)
        self.kept.append(found)
        return found


class ForkServer:
    """An interpreter from which the jobs of one template are forked."""

    def __init__(self, job: Job) -> None:
        """Starts it. Raises `OSError` where that fails."""
        self.job = job
        template = job.command[-1], job.command, filters.number_of("clone"), filters.program()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = in_memory(marshal.dumps(template))
        script = Path(fork_server.__file__).read_text()
        words = [*job.command[:-1], script, str(theirs.fileno()), str(given)]
        command = fork_server_command(job, words, list(fork_server.CAPABILITIES))
        try:
            self._process = Spawned(command, (theirs.fileno(), given), {"PATH": PATH + ":/usr/sbin"})
        finally:
            theirs.close()
            os.close(given)

    def fork(self, limits: Limits, lane: Lane) -> Fork:
        """Forks a job. Raises `OSError` where the interpreter has ended."""
        assert lane.group is not None
        request = lane.user, limits.disk_mb << 20, SHARED_MEMORY, _kernel_limits(limits)
        fork = Fork(self)
        groups = [os.open(file, os.O_WRONLY) for file in lane.group.processes]
        try:
            socket.send_fds(self._channel, [marshal.dumps(request)], [*fork.theirs, *groups])
            fork.hand_over()
        except OSError:
            fork.close()
            raise OSError(f"the interpreter for warm jobs has ended: {self.last_message()}") from None
        finally:
            for group in groups:
                os.close(group)
        return fork

    def close(self) -> None:
        """Ends it, with all jobs that were forked from it."""
        self._channel.close()
        self._process.reap()
        self._process.close()

    def last_message(self) -> str:
        """The last of its standard error, which explains why it ended."""
        os.set_blocking(self._process.stderr.fileno(), False)
        return (self._process.stderr.read(4096) or b"").decode(errors="replace").strip() or "no message"
