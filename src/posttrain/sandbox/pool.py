"""A pool of sandboxes that runs several jobs at a time.

A slot is a thread that lives as long as the pool: its processes end with it. A slot has two lanes, for the running job
and for one that is started in advance (`Job.warm`): an interpreter that waits for its input, in a sandbox that is used
once. Where possible it is forked (`posttrain.sandbox.warm`). So a warm job is isolated like any other, and no
process of a hostile program lives when the next one starts. Shells (`posttrain.sandbox.shells`) have lanes of their
own; their commands take turns with jobs in the slots' threads.
"""

import atexit
import itertools
import os
import threading
import time
from asyncio import wrap_future
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from posttrain.errors.temporary import sweep
from posttrain.sandbox import cgroups, supervise
from posttrain.sandbox.job import Job, Limits, Result
from posttrain.sandbox.launch import Lane, Tier
from posttrain.sandbox.shells import Boxes, Shell
from posttrain.sandbox.warm import Fork, ForkServers, can_fork, no_forks

ATTEMPTS: Final = 3
"""Attempts of a job whose sandbox fails."""
FIRST_USER: Final = 400_000_000
"""Lanes are users from here on, where this process is root: 256 for each process, so that no two share one."""
MOST_BESIDE: Final = 128
"""Jobs on other machines at a time."""
MOST_IDLE: Final = 64
"""The default number of slots exceeds this only with more cores."""


class Elsewhere(Protocol):
    """Other machines that run programs for this process."""

    def run(self, tier: Tier, job: Job, limits: Limits) -> Result | None:
        """The result of a job in a sandbox of that tier or a stronger one; None where no machine has that, and all that
        the job needs.
        """
        ...


elsewhere: Elsewhere | None = None
"""Set while there are some."""
_lanes = itertools.count()
"""Numbers of lanes, unique in a process over all pools."""


class Pool:
    """The slots of one tier."""

    def __init__(self, tier: Tier, slots: int, *, forks: bool = True, one_server: bool = False) -> None:
        """`forks` is whether warm jobs are forked where they can be; with `one_server` all slots fork from the same
        interpreter, as where it holds much memory. Raises `OSError` where the tier needs control groups and none can be
        made.
        """
        self.tier, self.slots = tier, slots
        self._servers = ForkServers() if one_server else None
        self.forks = forks and not no_forks(tier)
        self._home = cgroups.open_home() if tier == "cgroup" else None
        self._boxes = Boxes(tier, self._lane, forks=self.forks)
        self._opened: list[_Slot] = []
        self._mine = threading.local()
        self._threads = ThreadPoolExecutor(slots, "sandbox", initializer=self._open_slot)
        sweep()
        atexit.register(self.close)

    def submit(self, job: Job, limits: Limits) -> "Future[Result]":
        """Run a job as soon as a slot is free, here or elsewhere."""
        if elsewhere is not None:
            return _beside().submit(self._run_elsewhere, elsewhere, job, limits)
        return self._threads.submit(self._run, job, limits)

    def run(self, job: Job, limits: Limits | None = None) -> Result:
        """Run a job and wait for it."""
        return self.submit(job, limits or Limits()).result()

    async def result(self, job: Job, limits: Limits) -> Result:
        """Runs a job without blocking the event loop."""
        return await wrap_future(self.submit(job, limits))

    def shell(self, limits: Limits, setup: str = ":", *, commands: int = 100) -> Shell:
        """A shell of this machine with limits of each command; `setup` is run first. The kernel's own limit of
        processor time is that of `commands` commands.
        """
        return Shell(self._boxes, limits, setup, commands, self._threads.submit)

    def close(self) -> None:
        """Cancels waiting jobs and removes the groups; the pool cannot be used afterwards."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._boxes.close()
        while self._opened:
            self._opened.pop().clear()
        if self._servers is not None:
            self._servers.close()
        if self._home is not None:
            self._home.remove()
        atexit.unregister(self.close)

    def _open_slot(self) -> None:
        """Opens the thread's slot, with two lanes."""
        own = self._servers is None
        lanes = [self._lane() for _ in range(2)]
        self._mine.slot = _Slot(lanes, self._servers or ForkServers(), own_servers=own)
        self._opened.append(self._mine.slot)

    def _lane(self) -> Lane:
        number = next(_lanes)
        group = self._home.group(f"lane-{number}") if self._home is not None else None
        return Lane(user=user_of(number) if os.getuid() == 0 and self.tier != "none" else None, group=group)

    def _run_elsewhere(self, there: Elsewhere, job: Job, limits: Limits) -> Result:
        """Run a job on another machine; here where there is none for it."""
        found = there.run(self.tier, job, limits)
        return self._threads.submit(self._run, job, limits).result() if found is None else found

    def _run(self, job: Job, limits: Limits) -> Result:
        """Runs a job; a job whose sandbox fails is retried."""
        for attempt in range(ATTEMPTS):
            result = self._run_once(job, limits)
            if result.outcome != "sandbox_error":
                break
            time.sleep(0.05 * 4**attempt)
        return result

    def _run_once(self, job: Job, limits: Limits) -> Result:
        slot: _Slot = self._mine.slot
        template = replace(job, stdin=b"")
        started, slot.spare = slot.spare, None
        longest = limits
        try:
            if started is not None and started.job == template:
                longest = replace(limits, cpu_s=max(limits.cpu_s, started.limits.cpu_s))
            if started is not None and not supervise.adopted(started, template, limits):
                supervise.discard(started)
                started = None
            started = started or self._start(slot, template, limits)
            result = supervise.finish(started, job.stdin)
            if result.outcome == "sandbox_error" and isinstance(started.child, Fork):
                reason = slot.servers.end(started.child)
                result = replace(result, explanation="; ".join(filter(None, (result.explanation, reason))))
            if job.warm:
                slot.lanes.reverse()
                slot.spare = self._start(slot, template, longest)
        except OSError as error:
            return Result(outcome="sandbox_error", explanation=f"{type(error).__name__}: {error}")
        return result

    def _start(self, slot: "_Slot", template: Job, limits: Limits) -> supervise.Started:
        lane = slot.lanes[0]
        fork = None
        if self.forks and can_fork(template):
            fork = slot.servers.fork
        return supervise.start(template, limits, self.tier, lane, fork)


@dataclass(slots=True)
class _Slot:
    """The resources of one thread of a pool."""

    lanes: list[Lane]
    """The first is for the job that is started next."""
    servers: ForkServers
    own_servers: bool = True
    """Whether no other slot has them."""
    spare: supervise.Started | None = None
    """A started job that waits for its input."""

    def clear(self) -> None:
        """Ends all processes, and removes the lanes' groups."""
        if self.spare is not None:
            supervise.discard(self.spare)
        if self.own_servers:
            self.servers.close()
        for lane in self.lanes:
            if lane.group is not None:
                lane.group.remove()


@cache
def _beside() -> ThreadPoolExecutor:
    """Threads that wait for other machines."""
    return ThreadPoolExecutor(MOST_BESIDE, "sandbox-elsewhere")


def usual_slots() -> int:
    """Slots that keep this machine's cores busy: more than there are cores, since a third of the time that a job takes
    is the kernel's work on its namespaces.
    """
    cores = usable_cores()
    return max(cores, min(2 * cores + 2, MOST_IDLE))


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def user_of(lane: int) -> int:
    """The user of a lane: a unique number where all are available, else one of the available ones."""
    inside = int(Path("/proc/self/uid_map").read_text().split()[2])
    number = FIRST_USER + (os.getpid() << 8) + lane % 256
    return number if number < inside else max(1, inside - 1 - (os.getpid() * 64 + lane) % (inside // 2))
