"""Limits of a worker, and the outcome of one call."""

from dataclasses import dataclass
from typing import Any, Literal

How = Literal["ok", "raised", "timeout_cpu", "timeout_wall", "memory", "crashed", "unstarted", "infra_error"]
"""``raised``: the grader raised; ``crashed``: a signal ended its process; ``unstarted``: the grader cannot be loaded;
``infra_error``: it could not be run, for a reason outside the grader, also when retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one call."""

    cpu_seconds: float = 10.0
    """Processor time of all threads of the worker."""
    wall_seconds: float = 120.0
    """Wall-clock time, from when a worker takes the call."""
    memory_mib: int | None = 2048
    """Private writable memory of the worker's process, imports included; None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one call."""

    how: How
    value: Any = None
    """What the grader returned; JSON."""
    explanation: str = ""
    """What went wrong, in words."""
    cpu_seconds: float = 0.0
    """Processor time of the call; the limit if it was exceeded."""
    wall_seconds: float = 0.0
    attempts: int = 1
    """Number of times that it was started."""
