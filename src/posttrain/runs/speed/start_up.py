"""Time from nothing to the first sampled token of the bundled model, in fresh processes.

``warm``: the files are in memory, from a start before. ``cold``: this environment's files are put out of the system's
cache first, as after a restart of the machine. What other programs hold open stays there, so the share of pages that
really had to be read is measured too.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PROGRAM = "import sys; from posttrain.cli import main; sys.exit(main())"
"""What the installed command runs."""
COMMAND = ("-P", "-c", PROGRAM, "sample", "pebble", "12+30=", "--max-tokens", "1")
_PAGE = 4096


def start(environment: Mapping[str, str], *, cold: bool) -> dict[str, Any]:
    """Seconds of one start; with `cold`, the share of pages that were not in memory (None where unknown)."""
    missing = forget_files() if cold else 0.0
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, *COMMAND], env={**os.environ, **environment}, capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(f"posttrain sample ended with exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return {"seconds": seconds, "read_from_disk": missing}


def forget_files() -> float | None:
    """Let the system drop this environment's files from its cache; the share of their pages that it did."""
    if not hasattr(os, "posix_fadvise"):
        return None
    examined, gone = 0, 0
    for path in _files():
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            held = _held(file, os.fstat(file).st_size)
        finally:
            os.close(file)
        if held is None:
            return None
        examined += len(held)
        gone += held.count(False)
    return gone / examined if examined else None


def _held(file: int, size: int) -> list[bool] | None:
    """For a few pages of a file, whether they are in memory; None where unknown."""
    if not hasattr(os, "preadv") or not hasattr(os, "RWF_NOWAIT"):
        return None
    places = range(0, size, max(_PAGE, size // 16 // _PAGE * _PAGE))
    held = []
    for place in places:
        try:
            held.append(os.preadv(file, [bytearray(1)], place, os.RWF_NOWAIT) == 1)
        except BlockingIOError:
            held.append(False)
        except OSError:
            return None
    return held


def _files() -> Iterator[Path]:
    """The interpreter, this package, and the packages around it."""
    folders = {
        Path(__file__).parents[2],
        *(Path(p) for p in sys.path if p.endswith(("site-packages", "dynload"))),
    }
    yield Path(sys.executable).resolve()
    for folder in folders | {Path(os.__file__).parent}:
        for root, names, files in os.walk(folder):
            if Path(root) != folder and Path(root) in folders:
                names.clear()
                continue
            yield from (Path(root) / name for name in files)
