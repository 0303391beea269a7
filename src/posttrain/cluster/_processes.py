"""What a Ray of one's own leaves on the machine, and its end.

Every process of it inherits the name of the run's temporary folder in its environment. So they are found whatever
happened, also those whose driver was killed, and ended one by one. (``ray stop`` ends every Ray of the machine.)
"""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

from posttrain.errors.temporary import PREFIX

MARK: Final = "POSTTRAIN_CLUSTER"
"""Environment variable with the folder of the cluster that a process belongs to."""


def marked() -> dict[int, str]:
    """The processes of all clusters of this user on this machine, with the folder of each."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            content = (entry / "environ").read_bytes()
        except OSError:  # ended meanwhile, or another user's
            continue
        for part in content.split(b"\0"):
            if part.startswith(MARK.encode() + b"="):
                found[int(entry.name)] = os.fsdecode(part.partition(b"=")[2])
    return {pid: folder for pid, folder in found.items() if pid != os.getpid()}


def end(folder: str, patience: float = 3.0) -> list[int]:
    """End the processes of one cluster after `patience` seconds to end by themselves. Returns those that did not."""
    until = time.monotonic() + patience
    while own := [pid for pid, of in marked().items() if of == folder]:
        if time.monotonic() > until:
            for pid in own:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _gone(folder)
            return own
        time.sleep(0.02)
    return []


def _gone(folder: str) -> None:
    until = time.monotonic() + 5.0
    while folder in marked().values() and time.monotonic() < until:
        time.sleep(0.02)


def end_left_over() -> list[int]:
    """End processes of clusters whose run is no more: its folder has been removed, since nobody holds it.

    `posttrain.errors.temporary.sweep` comes first.
    """
    ended = []
    for folder in set(marked().values()):
        if Path(folder).name.startswith(PREFIX) and not Path(folder).exists():
            ended += end(folder, patience=0.0)
    return ended
