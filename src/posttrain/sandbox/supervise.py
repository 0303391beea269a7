"""Supervises one job: start, input, output, limits, outcome.

Nothing that the program does decides how long this takes: reading stops at the limit, waiting at the deadline, and
after the kill nobody waits for the pipes longer than `DRAIN_S`, since a process that outlived its parent could hold
them open for ever. How it ended is told by what was measured outside: control groups, clocks, bytes read.
"""

import os
import selectors
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

from posttrain.sandbox.job import Job, Limits, Outcome, Result
from posttrain.sandbox.launch import READY, Lane, Tier, launch
from posttrain.sandbox.processes import Child, Spawned
from posttrain.sandbox.removal import remove_tree
from posttrain.sandbox.warm import Nursery

LOOK_S: Final = 0.02
"""Seconds between two looks at what a job has used."""
DRAIN_S: Final = 1.0
CHUNK: Final = 1 << 16
SETUP_CPU_S: Final = 0.05
"""Processor time of putting up the walls, which is not the program's."""


@dataclass(slots=True)
class Started:
    """A job under way, or one that waits for its input."""

    job: Job
    limits: Limits
    lane: Lane
    child: Child
    box: Path | None = None
    """The box, where it is a folder of this machine."""
    kills_before: int = 0
    cpu_before: float = 0.0
    output: dict[str, bytearray] = field(default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()})
    left: memoryview = field(default_factory=lambda: memoryview(b""))
    """Input that was not read yet."""
    seen_cpu_s: float = 0.0
    """Most processor time seen at a look, where no control group counts it."""
    reaped: tuple[int | None, float] | None = None
    """Exit code and processor time, once it was waited for."""


def start(job: Job, limits: Limits, tier: Tier, lane: Lane, nursery: Nursery | None = None) -> Started:
    """Start a job, or fork it where there is a nursery for it. Raises `OSError` where that fails."""
    group = lane.group
    if group is not None:
        group.limit(limits.memory_mb << 20, limits.processes + 8)  # eight for the walls' own
    if nursery is not None:
        started = Started(job, limits, lane, nursery.fork(limits, lane))
    else:
        started = _launched(job, limits, tier, lane)
    if group is not None:
        started.kills_before, started.cpu_before = group.killed_for_memory(), group.cpu_s()
    return started


def _launched(job: Job, limits: Limits, tier: Tier, lane: Lane) -> Started:
    launched = launch(job, limits, tier, lane)
    try:
        child = Spawned(launched.command, launched.descriptors, launched.environment)
    except OSError:
        _forget(launched.folder)
        raise
    finally:
        for descriptor in launched.descriptors:
            os.close(descriptor)
    return Started(job, limits, lane, child, launched.folder)


def finish(started: Started, stdin: bytes) -> Result:
    """Give a started job its input and see it through to its end; nothing of it is left afterwards."""
    begun = time.monotonic()
    try:
        stopped = _attend(started, stdin, begun + started.limits.wall_s)
    finally:
        _end(started)
    result = _judged(started, stopped)
    return replace(result, wall_s=time.monotonic() - begun)


def discard(started: Started) -> None:
    """End a job that is not wanted any more."""
    _end(started)


def _attend(started: Started, stdin: bytes, deadline: float) -> Outcome | None:
    """Feed and read until the program ends; the limit that it broke, if it broke one."""
    child, started.left = started.child, memoryview(stdin)
    pipes = {"stdin": child.stdin, "stdout": child.stdout, "stderr": child.stderr}
    next_look = time.monotonic() + LOOK_S
    with selectors.DefaultSelector() as selector:
        selector.register(child.end, selectors.EVENT_READ, "end")
        for name, pipe in pipes.items():
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_WRITE if name == "stdin" else selectors.EVENT_READ, name)
        while True:
            ready = [key for key, _ in selector.select(LOOK_S)]
            if not all(_serve(started, key, selector) for key in ready if key.data != "end"):
                return "output_limit"
            if any(key.data == "end" for key in ready):
                return None
            now = time.monotonic()
            if now > next_look or now > deadline:
                next_look = now + LOOK_S
                if broken := _broken(started, late=now > deadline):
                    return broken


def _serve(started: Started, key: selectors.SelectorKey, selector: selectors.BaseSelector) -> bool:
    """Write to, or read from, a pipe that is ready; False where more was read than is allowed."""
    if key.data == "stdin":
        pipe = started.child.stdin
        started.left = _fed(pipe, started.left)
        if not started.left:
            selector.unregister(pipe)
            pipe.close()
        return True
    output = started.output[key.data]
    if not _read(key.fd, output):
        selector.unregister(key.fileobj)
    return len(output) <= (started.limits.output_kb << 10) + len(READY)


def _broken(started: Started, *, late: bool) -> Outcome | None:
    """The limit that a running program is beyond."""
    limits, group = started.limits, started.lane.group
    if group is not None:
        cpu_s, memory = group.cpu_s() - started.cpu_before, 0
    else:
        used = started.child.usage()
        cpu_s, memory = used.cpu_s, used.memory_bytes
        started.seen_cpu_s = max(started.seen_cpu_s, cpu_s)
    if cpu_s > limits.cpu_s + SETUP_CPU_S:
        return "timeout_cpu"
    if memory > limits.memory_mb << 20:
        return "memory"
    return "timeout_wall" if late else None


def _end(started: Started) -> None:
    """Kill whatever is left of a job, read what it had written, forget its box."""
    if started.reaped is None:
        started.reaped = started.child.reap()
    if started.lane.group is not None:
        started.lane.group.empty()
    _drain(started)
    started.child.close()
    _forget(started.box)


def _drain(started: Started) -> None:
    """Read what is still in the pipes, up to the limit and not for ever."""
    deadline, limit = time.monotonic() + DRAIN_S, (started.limits.output_kb << 10) + len(READY)
    for name, pipe in (("stdout", started.child.stdout), ("stderr", started.child.stderr)):
        if pipe.closed:
            continue
        os.set_blocking(pipe.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(started.output[name]) <= limit and (left := deadline - time.monotonic()) > 0:
                if not selector.select(left) or not _read(pipe.fileno(), started.output[name]):
                    break


def _judged(started: Started, stopped: Outcome | None) -> Result:
    """What a job's end means."""
    limits, group = started.limits, started.lane.group
    code, cpu_s = started.reaped or (None, 0.0)
    cpu_s = max(cpu_s, started.seen_cpu_s)
    if group is not None:
        cpu_s = group.cpu_s() - started.cpu_before
        if group.killed_for_memory() > started.kills_before:
            stopped = "memory"
    stdout, stderr = bytes(started.output["stdout"]), bytes(started.output["stderr"])
    if (not stderr.startswith(READY) or (code is None and stopped is None)) and stopped != "memory":
        said = stderr[:500].decode(errors="replace").strip() or "it said nothing"
        how = f"after {stopped}" if stopped else f"with code {code}"
        return Result(outcome="sandbox_error", cpu_s=cpu_s, explanation=f"the walls did not go up ({how}): {said}")
    limit = limits.output_kb << 10
    stderr = stderr[len(READY) :]
    if stopped is None and max(len(stdout), len(stderr)) > limit:
        stopped = "output_limit"
    if stopped is None and cpu_s > limits.cpu_s + SETUP_CPU_S:
        stopped = "timeout_cpu"
    return Result(
        outcome=stopped or ("ok" if code == 0 else "nonzero"),
        stdout=stdout[:limit],
        stderr=stderr[:limit],
        exit_code=None if stopped else code,
        cpu_s=cpu_s,
        explanation=_about(stopped, limits),
    )


def _about(stopped: Outcome | None, limits: Limits) -> str:
    """Which limit a program broke."""
    return {
        "timeout_cpu": f"more than {limits.cpu_s:g} s of processor time",
        "timeout_wall": f"not ended after {limits.wall_s:g} s",
        "memory": f"more than {limits.memory_mb} MB of memory",
        "output_limit": f"more than {limits.output_kb} kB of output",
    }.get(stopped or "", "")


def _fed(pipe: IO[bytes], left: memoryview) -> memoryview:
    """What is left to write after writing some; nothing where nobody reads."""
    try:
        return left[os.write(pipe.fileno(), left[:CHUNK]) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:
        return left[:0]


def _read(descriptor: int, into: bytearray) -> bool:
    """Read what is there; False at the end."""
    try:
        chunk = os.read(descriptor, CHUNK)
    except BlockingIOError:
        return True
    into += chunk
    return bool(chunk)


def _forget(box: Path | None) -> None:
    if box is not None:
        remove_tree(box)
