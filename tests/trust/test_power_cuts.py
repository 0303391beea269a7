"""A small part of `python -m benchmarks.power`, and the model of what a power cut leaves."""

import random
from pathlib import Path

import pytest

from benchmarks._crash_states import KINDS, Disk
from benchmarks._file_trace import Operation, Recorder, read_trace, read_tree
from tests.trust.commands import run_benchmark


def disk_after(*operations: Operation) -> Disk:
    disk = Disk()
    for operation in operations:
        disk.do(operation)
    return disk


def left(disk: Disk, kind: str) -> dict[str, bytes | None]:
    return KINDS[kind](disk, random.Random(0))


def test_what_is_synced_stays_and_what_is_not_can_be_lost_each_on_its_own() -> None:
    disk = disk_after(("create", "a"), ("write", "a", 0, b"new"), ("sync", "."))
    assert left(disk, "names, no bytes") == {"a": b""}
    assert left(disk, "names and sizes, zeros for bytes") == {"a": bytes(3)}
    disk = disk_after(("create", "a"), ("write", "a", 0, b"new"), ("sync", "a"))
    assert left(disk, "bytes, no names") == {} and left(disk, "names, no bytes") == {"a": b"new"}
    disk = disk_after(("create", ".t"), ("sync", "."), ("write", ".t", 0, b"new"), ("rename", ".t", "a"))
    assert left(disk, "bytes, no names") == {".t": b"new"}
    assert left(disk, "names, no bytes") == {"a": b""} and disk.now() == {"a": b"new"}


def test_sectors_are_kept_in_any_order_and_tails_torn_anywhere() -> None:
    disk = disk_after(("create", "a"), ("sync", "."), ("write", "a", 0, b"x" * 2048))
    found = [KINDS["sectors in any order"](disk, random.Random(seed))["a"] or b"" for seed in range(40)]
    assert any(content[:512] == bytes(512) and b"x" in content for content in found)
    torn = {len(KINDS["torn tails"](disk, random.Random(seed))["a"] or b"") for seed in range(40)}
    assert len(torn) > 10 and max(torn) <= 2048


def test_a_trace_leads_to_what_is_there(tmp_path: Path) -> None:
    code = (
        "import os, shutil, sys; from pathlib import Path; from benchmarks._file_trace import Recorder\n"
        "folder = Path(sys.argv[1]); Recorder(folder, Path(sys.argv[2]), {}).start()\n"
        "(folder / 'a').mkdir(); (folder / 'a/b').write_text('one'); os.rename(folder / 'a', folder / 'c')\n"
        "descriptor = os.open(folder / 'c/b', os.O_RDWR); os.ftruncate(descriptor, 1); os.write(descriptor, b'xyz')\n"
        "os.fsync(descriptor); (folder / 'gone').mkdir(); (folder / 'gone/d').write_text('d')\n"
        "shutil.rmtree(folder / 'gone'); os.open(folder / 'c', os.O_RDONLY)\n"
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    run_benchmark("-c", code, str(folder), str(tmp_path / "trace"))
    operations = read_trace(tmp_path / "trace")
    assert disk_after(*operations).now() == read_tree(folder) == {"c": None, "c/b": b"xyz"}
    kinds = [operation[0] for operation in operations]
    assert kinds.count("sync") == 1 and {"rename", "truncate", "unlink", "rmdir"} <= set(kinds)
    assert Recorder(folder, tmp_path / "again", read_tree(folder)).known == read_tree(folder)


@pytest.mark.slow
def test_power_cuts_are_resumed_to_the_same_end_or_stop_clearly() -> None:
    output = run_benchmark("-m", "benchmarks.power", "states", "--number", "30", "--workers", "2")
    tried, equal, stopped, wrong = (int(cell) for cell in output.splitlines()[-1].split("|")[2:6])
    assert tried == equal + stopped == 30 and wrong == 0
