"""That freed memory is kept, where the C library can be configured so."""

import platform
import subprocess
import sys

import pytest

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
