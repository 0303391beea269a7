"""Chat templates, rendered where they can neither take long nor take much: in a process with limits.

The process begins with the first rendering, ends with this one (its input is closed), and is started again when a
rendering ended it. See `posttrain.policies._template_worker`.
"""

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from posttrain.errors import UserError
from posttrain.errors.foreign import shown

SECONDS = 1
"""Processor time of a rendering; honest ones take less than a thousandth of it."""
MEMORY = 512 << 20
"""Bytes of address space of the process."""
_WORKER = Path(__file__).with_name("_template_worker.py")


class ChatTemplate:
    """A template; a pure function of the conversation that it is given."""

    def __init__(self, source: str, where: str, today: str, *, seconds: int = SECONDS) -> None:
        """`where` names the model in messages; `today` is the date that the template gets, ``2026-01-01``."""
        self._source, self._where, self._today, self._seconds = source, where, today, seconds
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        """Another process that gets this template starts a process of its own for it."""
        return partial(ChatTemplate, seconds=self._seconds), (self._source, self._where, self._today)

    def render(self, values: Mapping[str, Any]) -> str:
        """The text that the template makes. Raises `UserError` where it is broken, refuses, or takes too much."""
        with self._lock:
            if self._process is None or self._owner != os.getpid():
                self._start()
            answer = self._call(values)
        if "text" in answer:
            return str(answer["text"])
        what = answer.get("refused") or answer.get("failed")
        raise UserError(f"the chat template of '{self._where}' refuses these messages: {shown(what)}")

    def _start(self) -> None:
        """Start the process and let it compile the template."""
        paths = [path for path in sys.path if path and Path(path) != Path.cwd()]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-S", str(_WORKER), json.dumps(paths), str(self._seconds), str(MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env={"PYTHONHASHSEED": "0"},
        )
        self._owner = os.getpid()  # a fork of this process must not write into the same pipe
        weakref.finalize(self, _end, self._process)
        answer = self._call({"source": self._source, "today": self._today})
        if "text" not in answer:
            self._stop()
            raise UserError(f"the chat template of '{self._where}' is broken: {shown(answer.get('failed'))}")

    def _call(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send the process a line, and read its reply."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None, "it was started"
        try:
            process.stdin.write(json.dumps(values) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        except BaseException:  # Ctrl-C: the answer that is still to come would be taken for the next one's
            self._stop()
            raise
        if not line:
            self._stop()
            return {"failed": f"it takes more than {self._seconds} s of processor time, or too much memory"}
        answer: Mapping[str, Any] = json.loads(line)
        if answer.get("last"):
            self._stop()
        return answer

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """End a process and close its pipes."""
    process.kill()
    process.wait()
    pipes: list[IO[str] | None] = [process.stdin, process.stdout]
    for pipe in pipes:
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was not written yet has no reader any more
                continue
