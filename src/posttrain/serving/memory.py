"""Gives memory back to the system after requests.

The C library keeps what was freed, in one arena for each thread, and Python keeps what refers to itself until it
collects garbage: after a few large requests a server would have tens of megabytes more than it needs for as long as it
runs. The engine keeps the memory of its caches for the next requests. So all of this is freed when requests have
come and gone.
"""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Any, Final

from posttrain.serving.threads import EngineThread, Worker

QUIET = 0.5
"""Seconds without a request after which memory is given back."""
LONGEST: Final = 10.0
"""Seconds after which it is given back though requests keep coming."""


def give_back() -> None:
    """Collect garbage, and return freed pages of all arenas where the C library can (glibc)."""
    gc.collect()
    trim: Callable[[int], Any] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Tidier:
    """Gives memory back some time after requests: the engine's in its own thread, the rest in that of a worker."""

    def __init__(self, worker: Worker, engine: EngineThread) -> None:
        self._worker, self._engine = worker, engine
        self._first = self._last = 0.0
        self._waiting = False

    def soon(self) -> None:
        """A request has ended."""
        now = asyncio.get_running_loop().time()
        self._last = now
        if not self._waiting:
            self._waiting, self._first = True, now
            asyncio.get_running_loop().call_later(QUIET, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < min(self._last + QUIET, self._first + LONGEST):
            loop.call_later(QUIET, self._look)
            return
        self._waiting = False
        freed = self._engine.submit(_free_caches())
        freed.add_done_callback(lambda _: self._worker.start(give_back))


async def _free_caches() -> None:
    """Free what the engine keeps for its next requests."""
    from posttrain.engines._continuous import free_kept

    free_kept()
