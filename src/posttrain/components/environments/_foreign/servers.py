"""What adapters of servers and processes share: tries, an event loop in a thread, orders as lines of JSON."""

import asyncio
import json
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from posttrain.components.environments._foreign import ServerDown
from posttrain.errors import UserError

T = TypeVar("T")
TRIES: Final = 4
"""Starts or calls of a server at most: one, and three more."""
SHARED: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"),
    *("PYTHONPATH", "VIRTUAL_ENV"),
)
"""Environment variables that a server gets, where they are set: what every program needs, and where modules are."""
WAIT: Final = 0.2
"""Seconds before another try; it doubles each time."""


def tried(start: Callable[[], T], refused: str, failures: tuple[type[BaseException], ...]) -> T:
    """What `start` returns, tried `TRIES` times in all. Raises `ServerDown` with `refused` and the last reason."""
    for place in range(TRIES):
        try:
            return start()
        except failures as error:
            if place + 1 == TRIES:
                raise ServerDown(f"{refused.format(tries=TRIES)}: {_reason(error)}") from error
            time.sleep(WAIT * 2**place)
    raise AssertionError("the last one returned or raised")


def variables(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables of a server: `SHARED`, and those that ``arguments.environment`` names.

    A server is a stranger's program, and the run's environment may hold keys. Raises `UserError`.
    """
    further = {name: value for name, value in arguments.items() if name != "environment"}
    names = arguments.get("environment", [])
    if further or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"the arguments of an MCP server are environment, a list of names of variables that it gets; got "
            f"{dict(arguments)!r:.200}. Arguments of the script are in its command: mcp:python server.py --size 3"
        )
    if missing := [name for name in names if name not in os.environ]:
        raise UserError(f"the MCP server is to get the variable {missing[0]}, which is not set here: export it first")
    return {name: os.environ[name] for name in (*SHARED, *names) if name in os.environ}


def script(command: str) -> str:
    """The Python file of ``python FILE.py ...``, the only form, so that its bytes can be asked consent for."""
    words = shlex.split(command)
    if len(words) < 2 or Path(words[0]).name not in ("python", "python3") or not words[1].endswith(".py"):
        raise UserError(f"mcp:{command}: write mcp:python FILE.py; start another server from such a file")
    return words[1]


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: "Coroutine[Any, Any, T]") -> "Future[T]":
        """Begin work there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def soon(self, call: Callable[[], object]) -> None:
        """Call something there."""
        self._loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """End the thread, from within."""
        self._loop.stop()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the thread, so long at most."""
        self._thread.join(seconds)


class Piped:
    """A process that answers orders, each a line of JSON."""

    def __init__(self, command: Sequence[str]) -> None:
        """Raises `OSError` where it cannot be started."""
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def order(self, order: Any) -> Any:
        """The answer. Raises `OSError` or `ValueError` where the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        try:
            return json.loads(self._process.stdout.readline())
        except RecursionError:
            raise ValueError("the answer is too deep") from None

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def _reason(error: BaseException) -> str:
    """The innermost error of a group of one, by its type and message."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
