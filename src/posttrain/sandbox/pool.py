"""A pool of sandboxes that runs several jobs at a time.

A slot is a thread that lives as long as the pool: what it starts dies with it, however it ends. A slot has two lanes,
for the job that runs and for one that is started in advance (`Job.warm`): an interpreter that is up already and waits
for its input, in a sandbox that is used once. Where that can be, it is forked (`posttrain.sandbox.warm`). So a warm job
is as well contained as any other, and no process of a hostile program is ever there when the next one starts.
"""

import atexit
import itertools
import os
import threading
import time
from asyncio import wrap_future
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from posttrain.sandbox import cgroups, supervise
from posttrain.sandbox.job import Job, Limits, Result
from posttrain.sandbox.launch import BOX_PREFIX, Lane, Tier
from posttrain.sandbox.removal import remove_tree
from posttrain.sandbox.warm import Nursery, can_fork, no_forks

ATTEMPTS: Final = 3
"""Times that a job is tried whose sandbox failed."""
FIRST_USER: Final = 400_000_000
"""Lanes are users from here on, where this process is root: 256 for each process, so that no two ever meet."""
MOST_NURSERIES: Final = 2
"""Interpreters that a slot keeps to fork from: graders of two kinds may take turns."""
MOST_IDLE: Final = 64
"""Slots beyond this many are made only for cores that would have none."""

_lanes = itertools.count()
"""Numbers of lanes: no two of a process are one user, whatever pool they are in."""


class Pool:
    """The slots of one tier."""

    def __init__(self, tier: Tier, slots: int, *, forks: bool = True) -> None:
        """`forks` is whether warm jobs are forked where they can be. Raises `OSError` where the tier needs control
        groups and none can be made.
        """
        self.tier, self.slots = tier, slots
        self.forks = forks and not no_forks(tier)
        self._home = cgroups.open_home() if tier == "cgroup" else None
        self._furnished: list[_Slot] = []
        self._mine = threading.local()
        self._threads = ThreadPoolExecutor(slots, "sandbox", initializer=self._furnish)
        sweep_boxes()
        atexit.register(self.close)

    def submit(self, job: Job, limits: Limits) -> "Future[Result]":
        """Run a job as soon as a slot is free."""
        return self._threads.submit(self._run, job, limits)

    def run(self, job: Job, limits: Limits | None = None) -> Result:
        """Run a job and wait for it."""
        return self.submit(job, limits or Limits()).result()

    async def result(self, job: Job, limits: Limits) -> Result:
        """Run a job without holding up the event loop."""
        return await wrap_future(self.submit(job, limits))

    def close(self) -> None:
        """End what waits, and remove the groups; the pool is of no use afterwards."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        while self._furnished:
            self._furnished.pop().clear()
        if self._home is not None:
            self._home.remove()
        atexit.unregister(self.close)

    def _furnish(self) -> None:
        """Give the thread its slot, with two lanes."""
        self._mine.slot = _Slot([self._lane(next(_lanes)) for _ in range(2)])
        self._furnished.append(self._mine.slot)

    def _lane(self, number: int) -> Lane:
        group = self._home.group(f"lane-{number}") if self._home is not None else None
        return Lane(user=user_of(number) if os.getuid() == 0 and self.tier != "none" else None, group=group)

    def _run(self, job: Job, limits: Limits) -> Result:
        """Run a job; once more where the sandbox failed, since that says nothing of the job."""
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
        try:
            if started is not None and (started.job, started.limits) != (template, limits):
                supervise.discard(started)
                started = None
            started = started or self._start(slot, template, limits)
            result = supervise.finish(started, job.stdin)
            if result.outcome == "sandbox_error" and (said := slot.forget_nursery(template)):
                result = replace(result, explanation=f"{result.explanation}; {said}")
            if job.warm:
                slot.lanes.reverse()
                slot.spare = self._start(slot, template, limits)
        except OSError as error:
            slot.forget_nursery(template)
            return Result(outcome="sandbox_error", explanation=f"{type(error).__name__}: {error}")
        return result

    def _start(self, slot: "_Slot", template: Job, limits: Limits) -> supervise.Started:
        lane = slot.lanes[0]
        nursery = slot.nursery(template) if self.forks and can_fork(template) else None
        return supervise.start(template, limits, self.tier, lane, nursery)


@dataclass(slots=True)
class _Slot:
    """What one thread of a pool works with."""

    lanes: list[Lane]
    """The first is for the job that is started next."""
    spare: supervise.Started | None = None
    """A job that waits for its input."""
    nurseries: list[Nursery] = field(default_factory=list)
    """Interpreters to fork from; the last one was used last."""

    def nursery(self, template: Job) -> Nursery:
        """The one for a template. Raises `OSError` where none can be started."""
        found = next((nursery for nursery in self.nurseries if nursery.job == template), None)
        if found is None:
            while len(self.nurseries) >= MOST_NURSERIES:
                self.nurseries.pop(0).close()
            found = Nursery(template)
        else:
            self.nurseries.remove(found)
        self.nurseries.append(found)
        return found

    def forget_nursery(self, template: Job) -> str:
        """End the one for a template, if there is one, so that the next job gets another; what it said."""
        said = ""
        for nursery in [nursery for nursery in self.nurseries if nursery.job == template]:
            self.nurseries.remove(nursery)
            said = nursery.last_words()
            nursery.close()
        return said

    def clear(self) -> None:
        """End everything, and remove the lanes' groups."""
        if self.spare is not None:
            supervise.discard(self.spare)
        while self.nurseries:
            self.nurseries.pop().close()
        for lane in self.lanes:
            if lane.group is not None:
                lane.group.remove()


def usual_slots() -> int:
    """Slots that keep this machine's cores busy: more than there are cores, since a third of the time that a job takes
    is waiting for the kernel to make and to clear away its namespaces.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cores, min(2 * cores + 2, MOST_IDLE))


def user_of(lane: int) -> int:
    """The user of a lane: a number of its own where all numbers are to be had, else one of the few that are."""
    inside = int(Path("/proc/self/uid_map").read_text().split()[2])
    number = FIRST_USER + (os.getpid() << 8) + lane % 256
    return number if number < inside else max(1, inside - 1 - (os.getpid() * 64 + lane) % (inside // 2))


def sweep_boxes() -> None:
    """Remove the boxes that processes left behind which are no more."""
    for box in Path(gettempdir()).glob(f"{BOX_PREFIX}*"):
        process = box.name.removeprefix(BOX_PREFIX).partition("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            try:
                remove_tree(box)
            except OSError:  # another user's
                continue
