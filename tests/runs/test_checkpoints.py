import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posttrain.errors import RunFailed
from posttrain.runs import checkpoints


def state(number: int):
    def write(folder: Path) -> None:
        (folder / "policy").mkdir()
        (folder / "policy" / "weights.bin").write_bytes(bytes([number % 256]) * 50_000)
        (folder / "state.json").write_text(str(number))

    return write


def content(checkpoint: Path | None) -> int:
    assert checkpoint is not None
    number = int((checkpoint / "state.json").read_text())
    assert (checkpoint / "policy" / "weights.bin").read_bytes() == bytes([number % 256]) * 50_000
    return number


def no_damage(path: Path, what: str) -> None:
    raise AssertionError(f"{path}: {what}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    return run / "checkpoints"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_is_the_last_saved_and_old_ones_go(folder: Path) -> None:
    for number, name in enumerate(["sft-9", "sft-10", "rl-1"]):
        saved = checkpoints.save(folder, name, state(number), keep=2)
        assert saved == folder / name
    assert names(folder) == ["rl-1", "sft-10"]
    assert checkpoints.newest(folder, no_damage) == folder / "rl-1"
    assert content(folder / "sft-10") == 1


def test_no_checkpoint_yet(folder: Path) -> None:
    assert checkpoints.newest(folder, no_damage) is None
    assert checkpoints.sweep(folder) == []


def test_a_name_can_be_saved_again(folder: Path) -> None:
    for number in (1, 2, 3):
        checkpoints.save(folder, "step-5", state(number), keep=1)
    assert content(checkpoints.newest(folder, no_damage)) == 3
    assert names(folder) == ["step-5"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda c: os.truncate(c / "policy" / "weights.bin", 49_999),
            "policy/weights.bin has 49999 bytes instead of 50000",
        ),
        (lambda c: flip_bit(c / "policy" / "weights.bin", 31_337), "policy/weights.bin has changed"),
        (lambda c: (c / "state.json").unlink(), "state.json cannot be read"),
        (lambda c: (c / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda c: os.truncate(c / "manifest.json", 40), "manifest.json is missing or cannot be read"),
        (lambda c: (c / "manifest.json").write_text('{"number": 1, "files": {"state.json": 3}}'), "cannot be read"),
        (lambda c: (c / "manifest.json").write_text("[]"), "cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(folder: Path, damage, said: str) -> None:
    for number in (1, 2):
        checkpoints.save(folder, f"step-{number}", state(number), keep=3)
    damage(folder / "step-2")
    heard: list[tuple[Path, str]] = []
    assert content(checkpoints.newest(folder, lambda path, what: heard.append((path, what)))) == 1
    assert [path.name for path, _ in heard] == ["step-2"]
    assert said in heard[0][1]


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_every_byte_of_every_file_is_covered_by_the_sums(folder: Path) -> None:
    saved = checkpoints.save(folder, "step-1", state(1), keep=1)
    generator = random.Random(0)
    for file in ("state.json", "policy/weights.bin"):
        size = (saved / file).stat().st_size
        for position in {0, size - 1, generator.randrange(size)}:
            flip_bit(saved / file, position)
            assert checkpoints.find_damage(saved) is not None
            flip_bit(saved / file, position)
    assert checkpoints.find_damage(saved) is None


def test_all_damaged_gives_none(folder: Path) -> None:
    checkpoints.save(folder, "step-1", state(1), keep=1)
    (folder / "step-1" / "state.json").write_text("2")
    heard: list[str] = []
    assert checkpoints.newest(folder, lambda path, what: heard.append(what)) is None
    assert len(heard) == 1


def disk_full_as_os_error(folder: Path) -> None:
    (folder / "part").write_bytes(b"x" * 100)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def disk_full_as_safetensors_says_it(folder: Path) -> None:
    (folder / "part").write_bytes(b"x" * 100)
    raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize("write", [disk_full_as_os_error, disk_full_as_safetensors_says_it])
def test_a_full_disk_is_one_sentence_and_leaves_the_earlier_ones(folder: Path, write) -> None:
    checkpoints.save(folder, "step-1", state(1), keep=1)
    with pytest.raises(RunFailed) as failure:
        checkpoints.save(folder, "step-2", write, keep=1)
    assert "the disk is full" in str(failure.value)
    assert f"posttrain resume {folder.parent}" in str(failure.value)
    assert names(folder) == ["step-1"]
    assert content(checkpoints.newest(folder, no_damage)) == 1


@pytest.mark.parametrize("call", ["files.sync", "files.sync_descriptor", "checkpoints._sha256"])
def test_a_disk_that_fills_up_while_sealing(folder: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    checkpoints.save(folder, "step-1", state(1), keep=1)

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"posttrain.runs.{call}", full)
    with pytest.raises(RunFailed, match="the disk is full"):
        checkpoints.save(folder, "step-1", state(2), keep=1)
    monkeypatch.undo()
    assert names(folder) == ["step-1"]
    assert content(checkpoints.newest(folder, no_damage)) == 1


def test_failing_between_the_two_renames_brings_the_old_one_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save(folder, "step-1", state(1), keep=1)
    rename = Path.rename

    def fail_for_temporary(self: Path, target: Path) -> Path:
        if self.name.startswith(".tmp-"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_temporary)
    with pytest.raises(RunFailed, match="input/output error"):
        checkpoints.save(folder, "step-1", state(2), keep=1)
    assert content(checkpoints.newest(folder, no_damage)) == 1


def test_a_mistake_in_the_code_stays_what_it_is(folder: Path) -> None:
    def wrong(folder: Path) -> None:
        raise KeyError("optimizer")

    with pytest.raises(KeyError, match="optimizer"):
        checkpoints.save(folder, "step-1", wrong, keep=1)
    assert names(folder) == []


def test_an_interrupt_while_saving_leaves_no_trace(folder: Path) -> None:
    checkpoints.save(folder, "step-1", state(1), keep=1)

    def interrupted(folder: Path) -> None:
        (folder / "part").write_bytes(b"x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(folder, "step-2", interrupted, keep=1)
    assert names(folder) == ["step-1"]


def test_a_deleted_run_is_reported_and_not_made_again(folder: Path) -> None:
    folder.parent.rmdir()
    with pytest.raises(RunFailed, match="has been deleted or moved"):
        checkpoints.save(folder, "step-1", state(1), keep=1)
    assert not folder.parent.exists()


def test_a_run_deleted_while_saving(folder: Path) -> None:
    def delete_everything(temporary: Path) -> None:
        folder.parent.rename(folder.parent.with_name("elsewhere"))
        (temporary / "state.json").write_text("1")

    with pytest.raises(RunFailed, match="has been deleted or moved"):
        checkpoints.save(folder, "step-1", delete_everything, keep=1)


def test_sweep_removes_leftovers_and_finishes_a_replacement(folder: Path) -> None:
    checkpoints.save(folder, "step-1", state(1), keep=2)
    checkpoints.save(folder, "step-2", state(2), keep=2)
    (folder / ".tmp-step-3").mkdir()
    (folder / ".tmp-step-3" / "part").write_bytes(b"x")
    (folder / "step-2").rename(folder / ".old-step-2")
    assert checkpoints.sweep(folder) == [folder / ".tmp-step-3"]
    assert names(folder) == ["step-1", "step-2"]
    assert content(checkpoints.newest(folder, no_damage)) == 2


CHILD = """
import sys
from pathlib import Path
from posttrain.runs import checkpoints

folder, number = Path(sys.argv[1]), int(sys.argv[2])
checkpoints.sweep(folder)
while True:
    number += 1

    def write(temporary):
        (temporary / "policy").mkdir()
        (temporary / "policy" / "weights.bin").write_bytes(bytes([number % 256]) * 50_000)
        (temporary / "state.json").write_text(str(number))

    checkpoints.save(folder, f"step-{number % 3}", write, keep=2)
    print(number, flush=True)
"""


@pytest.mark.slow
def test_killed_at_random_moments_nothing_acknowledged_is_lost(folder: Path) -> None:
    generator = random.Random(7)
    folder.mkdir()
    last = 0
    for _ in range(20):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder), str(last)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        acknowledged = int(child.stdout.readline())
        time.sleep(generator.random() * 0.02)
        child.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        checkpoints.sweep(folder)
        last = content(checkpoints.newest(folder, no_damage))
        assert last in (acknowledged, acknowledged + 1)
        assert 1 <= len(names(folder)) <= 3
    assert last >= 20


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(run)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"this machine allows no small file system to be mounted: {mounted.stderr.strip()}")
    try:
        folder = run / "checkpoints"
        checkpoints.save(folder, "step-1", state(1), keep=2)

        def too_much(temporary: Path) -> None:
            (temporary / "weights.bin").write_bytes(b"x" * 400_000)

        with pytest.raises(RunFailed, match=r"the disk is full.*posttrain resume"):
            checkpoints.save(folder, "step-2", too_much, keep=2)
        assert names(folder) == ["step-1"]
        assert content(checkpoints.newest(folder, no_damage)) == 1
        checkpoints.save(folder, "step-2", state(2), keep=2)
    finally:
        subprocess.run(["umount", str(run)], check=True)
