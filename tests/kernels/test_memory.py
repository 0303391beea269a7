"""That freed memory is kept, where the C library can be configured so."""

import mmap
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.kernels.memory import Block, block_of, shared_block, take_large_pages
from posttrain.kernels.rooms import LINE, on_lines, room_in, shared_room

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


def test_a_block_is_lent_to_one_user_after_the_other() -> None:
    block = Block(4 * LINE)
    room = room_in(block, 4 * LINE)
    assert room is not None
    one, other = room.take((3, 5), torch.float32), room.take((7,), torch.uint8)
    assert (
        other.data_ptr() - one.data_ptr() == LINE and on_lines(60) == on_lines(64) == LINE and on_lines(65) == 2 * LINE
    )
    one.fill_(2.0)
    other.fill_(9)
    assert bool((one == 2).all()) and one.is_contiguous()
    place = one.data_ptr()
    assert room_in(block, LINE) is None  # it is lent
    del room, other
    view = one[1]
    del one
    assert block.lend() is None  # a view is enough
    del view
    again = room_in(block, LINE)
    assert again is not None and again.take((2,), torch.float64).data_ptr() == place
    assert room_in(Block(LINE), 2 * LINE) is None and room_in(None, LINE) is None


def test_tensors_outlive_the_holder_of_their_block() -> None:
    block = Block(LINE)
    room = room_in(block, LINE)
    assert room is not None
    tensor = room.take((16,), torch.float32).fill_(3.0)
    del block, room
    assert tensor.tolist() == [3.0] * 16


def test_all_share_the_block_that_is_held() -> None:
    assert shared_block() is None and shared_room(LINE) is None
    small = block_of(LINE)
    assert block_of(10) is small and shared_block() is small
    large = block_of(2 * LINE)
    assert large is not small and block_of(LINE) is large and shared_room(2 * LINE) is not None
    del large
    assert shared_block() is None and small.size == LINE
