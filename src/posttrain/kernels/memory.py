"""Keeps freed memory for reuse instead of returning it to the system.

Every page from the system is zeroed and mapped again, which took a third of a learning step on a CPU, since a forward
pass frees and allocates the same megabytes repeatedly.
"""

import contextlib
import ctypes
import platform
import resource
import sys
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
