"""Supervises one job: start, input, output, limits, outcome.

The program cannot extend the time that this takes: reading stops at the limit, waiting at the deadline, and after the
kill pipes are read for at most `DRAIN_S`, since a process that outlives its parent could hold them open. The outcome is
measured outside: control groups, clocks, bytes read.
"""

import os
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

from posttrain.errors.temporary import remove_temporary
from posttrain.sandbox.job import Job, Limits, Outcome, Result
from posttrain.sandbox.launch import READY, Lane, Tier, launch
from posttrain.sandbox.processes import Child, Spawned
from posttrain.sandbox.warm import Fork

SAMPLE_S: Final = 0.02
"""Seconds between two samples of a job's resource use."""
DRAIN_S: Final = 1.0
CHUNK: Final = 1 << 16
Forks = Callable[[Job, Limits, Lane], Fork]
"""How a job is forked."""
SETUP_CPU_S: Final = 0.05
"""Processor time of the isolation, which is not the program's."""


@dataclass(slots=True)
class Started:
    """A running job, or one that waits for its input."""

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
    """Largest sample of processor time, where no control group counts it."""
    reaped: tuple[int | None, float] | None = None
    """Exit code and processor time, once it was waited for."""


def start(job: Job, limits: Limits, tier: Tier, lane: Lane, fork: Forks | None = None) -> Started:
    """Starts a job, or forks it. Raises `OSError` where that fails."""
    group = lane.group
    if group is not None:
        group.limit(limits.memory_mb << 20, limits.processes + 8)  # eight for the isolation itself
    if fork is not None:
        started = Started(job, limits, lane, fork(job, limits, lane))
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
        _remove(launched.folder)
        raise
    finally:
        for descriptor in launched.descriptors:
            os.close(descriptor)
    return Started(job, limits, lane, child, launched.folder)


def finish(started: Started, stdin: bytes) -> Result:
    """Feeds a started job its input and waits for its end; nothing of it is left afterwards."""
    begun = time.monotonic()
    try:
        stopped = _attend(started, stdin, begun + started.limits.wall_s)
    finally:
        end(started)
    return replace(result(started, stopped), wall_s=time.monotonic() - begun)


def adopted(started: Started, job: Job, limits: Limits) -> bool:
    """Whether a job that waits can be used as `job`, from now on under `limits`.

    The time of all processes together and the output are measured by this side, so they may differ. The kernel's limit
    on the processor time of a single process stays, and may be higher than it would be, not lower.
    """
    same = replace(started.limits, cpu_s=limits.cpu_s, wall_s=limits.wall_s, output_kb=limits.output_kb)
    if (started.job, same) != (job, limits) or started.limits.cpu_s < limits.cpu_s:
        return False
    started.limits = limits
    return True


def discard(started: Started) -> None:
    """Ends a job that is not needed. It is waited for until it is isolated, since it enters its control group before,
    and what is not there yet cannot be ended: its pipes would stay open.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(started.child.stderr, selectors.EVENT_READ)
        selector.register(started.child.end, selectors.EVENT_READ)
        selector.select(DRAIN_S)
    end(started)


def _attend(started: Started, stdin: bytes, deadline: float) -> Outcome | None:
    """Feeds and reads until the program ends; the limit that it exceeded, if any."""
    child, started.left = started.child, memoryview(stdin)
    pipes = {"stdin": child.stdin, "stdout": child.stdout, "stderr": child.stderr}
    next_sample = time.monotonic() + SAMPLE_S
    with selectors.DefaultSelector() as selector:
        selector.register(child.end, selectors.EVENT_READ, "end")
        for name, pipe in pipes.items():
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_WRITE if name == "stdin" else selectors.EVENT_READ, name)
        while True:
            ready = [key for key, _ in selector.select(SAMPLE_S)]
            if not all(serve(started, key, selector) for key in ready if key.data != "end"):
                return "output_limit"
            if any(key.data == "end" for key in ready):
                return None
            now = time.monotonic()
            if now > next_sample or now > deadline:
                next_sample = now + SAMPLE_S
                if broken := exceeded(started, late=now > deadline):
                    return broken


def serve(started: Started, key: selectors.SelectorKey, selector: selectors.BaseSelector) -> bool:
    """Writes to, or reads from, a pipe that is ready; False where the output exceeds its limit."""
    if key.data == "stdin":
        pipe = started.child.stdin
        started.left = fed(pipe, started.left)
        if not started.left:
            selector.unregister(pipe)
            pipe.close()
        return True
    output = started.output[key.data]
    if not read(key.fd, output):
        selector.unregister(key.fileobj)
    return len(output) <= (started.limits.output_kb << 10) + len(READY)


def exceeded(started: Started, *, late: bool) -> Outcome | None:
    """The limit that a running program exceeds, if any."""
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


def end(started: Started) -> None:
    """Kills the processes of a job, reads its remaining output, removes its box."""
    if started.reaped is None:
        started.reaped = started.child.reap()
    if started.lane.group is not None:
        started.lane.group.empty()
    _drain(started)
    started.child.close()
    _remove(started.box)


def _drain(started: Started) -> None:
    """Reads the rest of the pipes, up to the limit and at most `DRAIN_S`."""
    deadline, limit = time.monotonic() + DRAIN_S, (started.limits.output_kb << 10) + len(READY)
    for name, pipe in (("stdout", started.child.stdout), ("stderr", started.child.stderr)):
        if pipe.closed:
            continue
        os.set_blocking(pipe.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(started.output[name]) <= limit and (left := deadline - time.monotonic()) > 0:
                if not selector.select(left) or not read(pipe.fileno(), started.output[name]):
                    break


def result(started: Started, stopped: Outcome | None) -> Result:
    """The result of an ended job."""
    limits, group = started.limits, started.lane.group
    code, cpu_s = started.reaped or (None, 0.0)
    cpu_s = max(cpu_s, started.seen_cpu_s)
    if group is not None:
        cpu_s = group.cpu_s() - started.cpu_before
        if group.killed_for_memory() > started.kills_before:
            stopped = "memory"
    stdout, stderr = bytes(started.output["stdout"]), bytes(started.output["stderr"])
    if (not stderr.startswith(READY) or (code is None and stopped is None)) and stopped != "memory":
        message = stderr[:500].decode(errors="replace").strip() or "no message"
        how = f"after {stopped}" if stopped else f"with code {code}"
        return Result(outcome="sandbox_error", cpu_s=cpu_s, explanation=f"the isolation failed ({how}): {message}")
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
    """The limit that a program exceeded, in words."""
    return {
        "timeout_cpu": f"more than {limits.cpu_s:g} s of processor time",
        "timeout_wall": f"not ended after {limits.wall_s:g} s",
        "memory": f"more than {limits.memory_mb} MB of memory",
        "output_limit": f"more than {limits.output_kb} kB of output",
    }.get(stopped or "", "")


def fed(pipe: IO[bytes], left: memoryview) -> memoryview:
    """The rest of the input after a write; empty where the pipe is closed."""
    try:
        return left[os.write(pipe.fileno(), left[:CHUNK]) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:
        return left[:0]


def read(descriptor: int, into: bytearray) -> bool:
    """Read what is there; False at the end."""
    try:
        chunk = os.read(descriptor, CHUNK)
    except BlockingIOError:
        return True
    into += chunk
    return bool(chunk)


def _remove(box: Path | None) -> None:
    if box is not None:
        remove_temporary(box)
