"""What a worker may use, and what became of one call."""

from dataclasses import dataclass
from typing import Any, Literal

How = Literal["ok", "raised", "timeout_cpu", "timeout_wall", "memory", "crashed", "unstarted", "infra_error"]
"""``raised``: the grader raised; ``crashed``: a signal ended its process; ``unstarted``: the grader cannot be loaded;
``infra_error``: it could not be run, through no fault of its own, also when tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one call may use."""

    cpu_seconds: float = 10.0
    """Processor time of all threads of the worker."""
    wall_seconds: float = 120.0
    """Time on the clock, from when a worker takes the call."""
    memory_mib: int | None = 2048
    """Private writable memory of the worker's process, what its imports take included; None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one call."""

    how: How
    value: Any = None
    """What the grader returned; JSON."""
    explanation: str = ""
    """What went wrong, for people."""
    cpu_seconds: float = 0.0
    """Processor time that the call took; the limit where it ran into it."""
    wall_seconds: float = 0.0
    attempts: int = 1
    """How often it was started."""
