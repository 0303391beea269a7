"""Real power cuts: runs on a file system of their own, on a loop device, that is shut down and mounted again.

After FS_IOC_SHUTDOWN without the log a file system writes nothing any more, not even its journal's memory, and what is
there when it is mounted again is what it had written until then by itself or because it was asked to sync. Between a
report and the cut pass up to 40 seconds, in which the kernel writes some of what is waiting, in an order of its own.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks._faulty import Ended, Tally, Workshop, at_the_end_of_step, clear_stop, ended_well
from benchmarks._file_trace import read_tree
from benchmarks._power_cuts import ROOT, lost, report_to

SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN: a file system writes nothing any more."""
WITHOUT_LOG = 2
"""Not what is in its journal's memory either."""
FILE_SYSTEMS = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}
RANDOM, SAVED, ENDED = "at a random moment", 'after "everything is saved"', "after the end was printed"
MOMENTS = (RANDOM, SAVED, ENDED)
LATEST = 40.0
"""Seconds between a report and the last cut after one; the first comes at once."""


def real_cuts(shop: Workshop, system: str, number: int) -> Iterator[Tally]:
    """A tally for each moment, of about `number` cuts of a file system."""
    if why_not := _why_not(shop, system):
        yield Tally(system, note=f"not tried: {why_not}")
        return
    with _mounted(system, shop.folder):
        began = time.monotonic()
        assert shop.run().code == 0
        seconds = time.monotonic() - began
    each = max(2, number // len(MOMENTS))
    for moment in MOMENTS:
        tally = Tally(f"{system}, {moment}")
        for index in range(each):
            wait = shop.rng.uniform(0.0, seconds) if moment == RANDOM else LATEST * index / (each - 1)
            stop_after = 1 + index % 4
            with _mounted(system, shop.folder) as mount:
                problem, stopped = _cut(shop, moment, wait, stop_after, mount)
            tally.count(problem, same=not stopped, stopped=stopped)
            print(f"{tally.fault}: {index + 1} of {each} cuts{problem and ', wrong: '}{problem}", file=sys.stderr)
        yield tally


def _why_not(shop: Workshop, system: str) -> str:
    """Why there can be no such file system here; empty where there can."""
    if shutil.which(FILE_SYSTEMS[system][0]) is None:
        return f"there is no {FILE_SYSTEMS[system][0]}"
    try:
        with _mounted(system, shop.folder):
            return ""
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip()


def _cut(shop: Workshop, moment: str, wait: float, stop_after: int, mount: Callable[[], None]) -> tuple[str, bool]:
    """Run, cut, mount, resume: what is wrong, empty where nothing is, and whether the resume stopped clearly."""
    log = shop.folder / "reported"
    log.unlink(missing_ok=True)

    def report(kind: str, detail: str) -> None:
        with log.open("a") as file:
            file.write(f"{kind} {detail}\n")

    def sabotage() -> None:
        report_to(report)
        if moment == SAVED:
            at_the_end_of_step(stop_after, lambda: os.kill(os.getpid(), signal.SIGTERM))()

    ended = shop.run(sabotage, _cut_after(wait) if moment == RANDOM else None)
    if moment != RANDOM and ended.code != (130 if moment == SAVED else 0):
        return f"the run itself ended with {ended.code}: {ended.output[-300:]}", False
    final = read_tree(ROOT) if moment == ENDED else {}
    if moment != RANDOM:
        time.sleep(wait)
        _shut_down()
    mount()
    lines = log.read_text().splitlines() if log.exists() else []
    reported = [(kind, detail) for kind, _, detail in (line.partition(" ") for line in lines)]
    gone = lost(reported, read_tree(ROOT), final)
    return _judged(shop, shop.resume(), gone, bool(reported))


def _judged(shop: Workshop, again: Ended, gone: str, reported: bool) -> tuple[str, bool]:
    if again.code == 2 and not reported:
        return gone or clear_stop(again, 2), True
    return f"{gone} {ended_well(again)}".strip() or shop.difference(), False


def _cut_after(seconds: float) -> Callable[[int], None]:
    def meanwhile(process: int) -> None:
        time.sleep(seconds)
        _shut_down()
        os.kill(process, signal.SIGKILL)

    return meanwhile


def _shut_down() -> None:
    descriptor = os.open(ROOT, os.O_RDONLY)
    fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
    os.close(descriptor)


@contextlib.contextmanager
def _mounted(system: str, folder: Path) -> Iterator[Callable[[], None]]:
    """A new file system at the place of runs; yields what mounts it again after a cut.

    Raises `subprocess.CalledProcessError` where it cannot be made or mounted.
    """
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(400 << 20 if system == "xfs" else 64 << 20)
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir()
    _order(*FILE_SYSTEMS[system], str(image))
    device = _order("losetup", "--find", "--show", str(image))

    def again() -> None:
        _unmount()
        _until_unused(device)
        _order("mount", device, str(ROOT))

    try:
        _order("mount", device, str(ROOT))
        yield again
    finally:
        _unmount()
        _order("losetup", "--detach", device)


def _until_unused(device: str) -> None:
    """Wait until no mount namespace has the file system: a sandbox that began meanwhile may hold a copy of the mount,
    and what is mounted again while it lives is the file system that was shut down.
    """
    while True:
        try:
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(0.1)


def _order(*command: str) -> str:
    """Run a command that must succeed; what it printed."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _unmount() -> None:
    """Take the file system away, once what still has its files open has ended."""
    while True:  # asked of umount itself: nothing else can be asked of XFS once it is shut down
        done = subprocess.run(["umount", str(ROOT)], capture_output=True, text=True)
        if done.returncode == 0 or "not mounted" in done.stderr:
            return
        time.sleep(0.1)
