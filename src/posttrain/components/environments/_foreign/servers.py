"""What adapters of servers and processes share: tries, an event loop in a thread, orders as lines of JSON."""

import asyncio
import json
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from posttrain.components.environments._foreign import ServerDown
from posttrain.errors import UserError

T = TypeVar("T")
TRIES: Final = 4
"""Starts or calls of a server at most: one, and three more."""
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
