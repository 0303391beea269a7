"""Keeps freed memory for reuse, where the C library would return it to the system.

Every page that comes back from the system is zeroed and mapped anew: a third of a CPU's learning step, since a forward
pass frees and takes the same megabytes again and again.
"""

import ctypes
import platform
from typing import Final

TRIM, TOP_PAD, MMAP = -1, -2, -3
"""Names of glibc's settings (mallopt(3))."""
KEPT: Final = (1 << 31) - 1
"""Bytes that may lie free before some are returned."""
STEP: Final = 64 << 20
"""Bytes that are taken from the system at a time."""
LARGE: Final = 32 << 20
"""What is at least as large comes from the system by itself, as pages that cost nothing until they are written. The
largest value that glibc takes."""


def keep_freed_memory() -> bool:
    """Tell glibc; False where the C library is another one."""
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    taken = [mallopt(setting, value) for setting, value in ((TRIM, KEPT), (TOP_PAD, STEP), (MMAP, LARGE))]
    return taken == [1, 1, 1]
