"""Resource use of a job's processes, read from /proc where no control group counts it.

It is sampled every few milliseconds, so a burst between two samples is not seen, and the time of a process that its
parent never waited for is lost when it ends. The tiers that use this list it as a weakness.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final, Protocol

TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource use of a process and its descendants."""

    cpu_s: float
    memory_bytes: int


class Child(Protocol):
    """The process of a job, with this side's ends of its pipes."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]
    end: int
    """A descriptor that is readable once the process has ended."""

    def usage(self) -> Usage:
        """Its resource use, where no control group counts it."""
        ...

    def reap(self) -> tuple[int | None, float]:
        """Kills it unless it has ended; its exit code, if any, and processor time."""
        ...

    def close(self) -> None:
        """Close this side's ends."""
        ...


class Spawned:
    """A command that was started for a job."""

    def __init__(self, command: Sequence[str], descriptors: Sequence[int], environment: Mapping[str, str]) -> None:
        """Starts it with the descriptors. Raises `OSError` where that fails."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=descriptors,
            env=environment,
            cwd="/",
            bufsize=0,
        )
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin and stdout and stderr
        self.stdin: IO[bytes] = stdin
        self.stdout: IO[bytes] = stdout
        self.stderr: IO[bytes] = stderr
        self.pid = self._process.pid
        self.end = os.pidfd_open(self.pid)

    def usage(self) -> Usage:
        """Processor time and memory of the command and all below it."""
        return usage(self.pid)

    def reap(self) -> tuple[int | None, float]:
        """Kills it and its descendants; its exit code and processor time."""
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            kill_all(self.pid)
        _, status, used = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode, used.ru_utime + used.ru_stime

    def close(self) -> None:
        """Close the pipes."""
        os.close(self.end)
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


def descendants(process: int) -> list[int]:
    """A process and all below it that live, parents first."""
    found, waiting = [], [process]
    while waiting:
        one = waiting.pop()
        found.append(one)
        try:
            for thread in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{thread}/children") as file:
                    waiting += map(int, file.read().split())
        except OSError:  # the process has ended meanwhile
            continue
    return found


def usage(process: int) -> Usage:
    """Processor time and memory of a process and all below it."""
    ticks = kilobytes = 0
    for one in descendants(process):
        try:
            with open(f"/proc/{one}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            with open(f"/proc/{one}/status") as file:
                lines = dict(line.split(":", 1) for line in file)
        except OSError:
            continue
        ticks += sum(int(value) for value in fields[11:15])
        kilobytes += sum(int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem") if name in lines)
    return Usage(ticks / TICKS, kilobytes << 10)


def kill_all(process: int) -> None:
    """Kill everything below a process, and then the process. What forks faster than it is killed is left to its own
    limits, after a few rounds.
    """
    for _ in range(20):
        below = descendants(process)[1:]
        for one in below:
            _kill(one)
        if not below:
            break
    _kill(process)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)
