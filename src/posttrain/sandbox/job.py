"""Jobs, limits and results of the sandbox."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen

Outcome = Literal["ok", "nonzero", "timeout_cpu", "timeout_wall", "memory", "output_limit", "sandbox_error"]
"""How a program ended, as seen from outside of it. ``sandbox_error``: the sandbox failed; the result is
not the program's."""

BOX = "/box"
"""The working directory of every program, and the only place that it can write to."""


@frozen
class Limits:
    """What one program may use, its children included."""

    cpu_s: PositiveFloat = 5.0
    """Seconds of processor time, of all processes together."""
    wall_s: PositiveFloat = 30.0
    """Seconds on the clock: generous, since a busy machine must not turn a correct program into an incorrect one."""
    memory_mb: Annotated[int, Field(ge=16, le=10**9)] = 512
    """Memory of all processes together, files in the box included, in units of 2**20 bytes."""
    processes: PositiveInt = 64
    """Processes and threads at one time."""
    disk_mb: PositiveInt = 64
    """Size of the box, in units of 2**20 bytes; it lies in memory."""
    output_kb: PositiveInt = 1024
    """Standard output, and standard error, each, in units of 2**10 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A program and its inputs. Of the machine it only sees installed programs and libraries."""

    command: tuple[str, ...]
    """Run with the box as working directory; a program is looked up in /usr/bin and /bin."""
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Content of files by name, found in the box; they can be changed there, without effect on anything outside."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Folders or files of this machine by the path that they get inside (absolute), read-only."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beside PATH, HOME, TMPDIR and LANG; none of this process's own are passed on."""
    warm: bool = False
    """Whether the command is trusted and does nothing before it has read all of its input, so that one may be started
    in advance. A `python_job` is forked from a running interpreter where that is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a finished program. Exit code, output and files are claims of the program."""

    outcome: Outcome
    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    """None where it did not end by itself."""
    cpu_s: float = 0.0
    """Processor time, measured from outside; nothing recorded depends on it."""
    wall_s: float = 0.0
    explanation: str = ""
    """For a `sandbox_error`, what failed; for a limit, which one."""
