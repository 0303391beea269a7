"""What the processes of a job use, read from /proc: where no control group counts for us, this has to do.

It is a look every few milliseconds, so a burst between two looks is not seen, and the time of a process that its
parent never waited for is lost when it ends. The tiers that rest on this say so.
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import Final

TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a process and its descendants."""

    cpu_s: float
    memory_bytes: int


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
        except OSError:  # it has ended meanwhile
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
