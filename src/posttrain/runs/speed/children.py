"""Benchmark processes that alternate over JSON lines. Standard library only, so that peers can use it.

    {"do": "start", ...}  ->  {"ready": true, ...}      once
    {"do": "turn", ...}   ->  {"seconds": 1.5, ...}     as often as is wanted
    {"do": "end"}         ->  {"peak_memory_bytes": ...}

A child that fails answers ``{"error": "..."}``. What libraries print goes to standard error.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any


class ChildFailed(Exception):
    """A child answered with an error, ended, or took too long."""


class Child:
    """A process that waits for its turn. The parent's end of the line."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], limit: float = 1800.0):
        """Start it; `limit` is the longest that it may take to answer, in seconds."""
        self.name, self._limit, self._rest = name, limit, b""
        self._begun = time.monotonic()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env={**os.environ, **environment}
        )

    def request(self, **question: Any) -> dict[str, Any]:
        """Send a line and wait for the answer. Raises `ChildFailed` with the last output of the child."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed("ended") from None
        answer: dict[str, Any] = json.loads(self._line())
        if "error" in answer:
            raise self._failed(answer["error"])
        return answer

    def start(self, **what: Any) -> dict[str, Any]:
        """The first question; the answer has the seconds since the process was made."""
        answer = self.request(do="start", **what)
        return answer | {"seconds_to_ready": time.monotonic() - self._begun}

    def end(self) -> dict[str, Any]:
        """The last question. The process is gone afterwards."""
        try:
            return self.request(do="end")
        finally:
            self.close()

    def close(self) -> None:
        """End the process, however it is."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._log.close()

    def _line(self) -> bytes:
        """The next line of the child."""
        assert self._process.stdout is not None
        until = time.monotonic() + self._limit
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise self._failed(f"has not answered for {self._limit:.0f} s")
            more = os.read(self._process.stdout.fileno(), 65536)
            if not more:
                raise self._failed("ended")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _failed(self, what: str) -> ChildFailed:
        """The error, with the last output of the child."""
        self._log.seek(0)
        last = self._log.read().decode(errors="replace").strip().splitlines()[-15:]
        return ChildFailed("\n".join([f"{self.name}: {what}", *last]))


class Line:
    """The child's end of the line. From its making on, only answers reach standard output."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def next(self) -> dict[str, Any]:
        """The next question; that the parent is gone means the end."""
        text = sys.stdin.readline()
        question: dict[str, Any] = json.loads(text) if text else {"do": "end"}
        return question

    def answer(self, **values: Any) -> None:
        """Send an answer."""
        self._answers.write(json.dumps(values) + "\n")
        self._answers.flush()

    def goodbye(self) -> None:
        """Answer the last question: with the peak memory, and that of a GPU where it was used."""
        from posttrain.kernels.memory import peak_memory

        torch = sys.modules.get("torch")
        on_gpu = torch is not None and torch.cuda.is_initialized()
        gpu = {"peak_gpu_bytes": torch.cuda.max_memory_allocated()} if on_gpu else {}  # type: ignore[union-attr]
        self.answer(peak_memory_bytes=peak_memory(), **gpu)


class Enough(BaseException):
    """Raised inside a trainer's callback to leave it, past everything that catches exceptions."""


class Steps:
    """The turns of a trainer that runs by itself: its callback calls `ready` once, and `done` after every step."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._waits = False
        self._released = self._busy = 0.0

    def ready(self, **about: Any) -> None:
        """Report that the first step can begin, and wait for its turn."""
        self._line.answer(ready=True, **about)
        self._wait()

    def done(self, **result: Any) -> None:
        """Answers with the result of a step, and waits for the next turn. Raises `Enough` when there is none."""
        busy = time.process_time() - self._busy
        self._line.answer(seconds=time.perf_counter() - self._released, cpu_seconds=busy, **result)
        self._wait()

    def _wait(self) -> None:
        if self._line.next()["do"] == "end":
            raise Enough
        self._released, self._busy = time.perf_counter(), time.process_time()
