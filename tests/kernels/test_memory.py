"""That freed memory is kept, where the C library can be configured so."""

import mmap
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from posttrain.kernels.memory import take_large_pages

SCRIPT = """
import resource, torch
from posttrain.kernels.memory import keep_freed_memory
assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def pass_over(size):
    held = [torch.ones(size // 4) for _ in range(8)]
pass_over(6 << 20)
before = faults()
for _ in range(5):
    pass_over(6 << 20)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
@pytest.mark.slow
def test_memory_that_was_freed_is_not_mapped_anew() -> None:
    """Five times eight tensors of 6 MiB are 61,440 pages; nearly all of them lie where the first eight lay."""
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 61_440 / 5


@pytest.mark.skipif(platform.system() != "Linux", reason="the system is not Linux")
def test_large_pages_are_asked_for_in_the_given_memory_alone() -> None:
    size = 8 << 20
    with mmap.mmap(-1, size) as mapped:
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        if not take_large_pages(address + 100, size - 200):
            pytest.skip("this system has no large pages")
        assert [_flags(at) for at in (address, address + size // 2, address + size - 1)] == [False, True, False]


def _flags(address: int) -> bool:
    """Whether the system has been asked for large pages at a place in memory."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif inside and first == "VmFlags:":
            return "hg" in rest.split()
    raise AssertionError("the place is not mapped")
