"""Supervisors that can be killed, in a process of their own, and waiting for what comes of it."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import posttrain


def supervisor(script: str) -> "subprocess.Popen[bytes]":
    """A process that runs a script until it prints that it is ready, and then waits to be killed."""
    waiting = textwrap.dedent(script) + '\nprint("ready", flush=True)\nsys.stdin.read()\n'
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys\n" + waiting],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(posttrain.__file__).parents[1])},
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that must become true within a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
