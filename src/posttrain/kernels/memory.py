"""Keeps freed memory for reuse instead of returning it to the system.

Every page from the system is zeroed and mapped again, which took a third of a learning step on a CPU, since a forward
pass frees and allocates the same megabytes repeatedly.
"""

import contextlib
import ctypes
import mmap
import platform
import resource
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

TRIM, TOP_PAD, MMAP = -1, -2, -3
"""Names of glibc's settings (mallopt(3))."""
HUGE: Final = 14
"""What madvise(2) calls large pages."""
KEPT: Final = (1 << 31) - 1
"""Free bytes before some are returned to the system."""
STEP: Final = 64 << 20
"""Bytes requested from the system at a time."""
LARGE: Final = 32 << 20
"""Allocations of at least this size are mapped separately, as pages that take no memory until they are written. The
largest value that glibc accepts.
"""


def keep_freed_memory() -> bool:
    """Configure glibc; False if the C library is another one."""
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    taken = [mallopt(setting, value) for setting, value in ((TRIM, KEPT), (TOP_PAD, STEP), (MMAP, LARGE))]
    return taken == [1, 1, 1]


class Block:
    """Memory that stays with the process while it is held, and is lent to one user after the other: gradients while
    learning, prepared weights while sampling. New memory comes from the system page by page, zeroed, which takes longer
    than to write it.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError, AttributeError):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._lent: weakref.ref[memoryview] | None = None

    def lend(self) -> memoryview | None:
        """All of it, until no tensor refers to it any more; None while one does."""
        with _LENDING:
            if self._lent is not None and self._lent() is not None:
                return None
            view = memoryview(self._memory)
            self._lent = weakref.ref(view)
            return view


_LENDING: Final = threading.Lock()
_block: "weakref.ref[Block] | None" = None
"""The last block that was made, which all share while one is held."""


def shared_block() -> Block | None:
    """The block of the process, if there is one."""
    return None if _block is None else _block()


def block_of(size: int) -> Block:
    """A block of at least that size, to be held by the caller: the one that there is if it suffices."""
    global _block
    shared = shared_block()
    if shared is None or shared.size < size:
        shared = Block(size)
        _block = weakref.ref(shared)
    return shared


def take_large_pages(address: int, size: int) -> bool:
    """Ask the system for large pages in memory that has not been written (madvise(2)). The first write to 98 MB takes
    some 6 ms with them, 40 without. False where it has none.
    """
    page = resource.getpagesize()
    begin = -(-address // page) * page
    advise: Callable[..., int] | None = getattr(ctypes.CDLL(None), "madvise", None)
    if platform.system() != "Linux" or advise is None or size < page:
        return False
    length = (address + size - begin) // page * page
    return advise(ctypes.c_void_p(begin), ctypes.c_size_t(length), HUGE) == 0


def give_back() -> None:
    """Return freed pages of all arenas to the system, where the C library can (glibc)."""
    trim: Callable[[int], Any] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_memory() -> int:
    """Most memory that this process has held, in bytes.

    The system's own figure of the process's memory: the usual figure (``ru_maxrss``) begins at the parent's.
    """
    return _status("VmHWM")


def resident_memory() -> int:
    """Memory that this process holds, in bytes; its peak where the system does not say."""
    return _status("VmRSS")


def forget_peak() -> None:
    """Let the peak begin anew, where the system can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
