"""Memory that this process may still take: what the machine has free, within the limits of its control groups."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Available:
    """Memory that can still be taken."""

    bytes: int
    limit: str
    """What limits it."""


def available_memory(root: Path = Path("/")) -> Available | None:
    """The least of what the machine has free, swap included, and what each control group around this process leaves.

    None where the system does not say (it is not Linux).
    """
    try:
        text = (root / "proc/meminfo").read_text()
    except OSError:
        return None
    free = {name: int(value) * 1024 for name, value in re.findall(r"^(MemAvailable|SwapFree):\s+(\d+)", text, re.M)}
    if "MemAvailable" not in free:
        return None
    found = [Available(bytes=sum(free.values()), limit="free memory of the machine")]
    found += [Available(bytes=left, limit=f"limit of the control group {path}") for path, left in _groups(root)]
    return min(found, key=lambda one: one.bytes)


def _groups(root: Path) -> Iterator[tuple[str, int]]:
    """Bytes that each control group with a memory limit leaves, versions 1 and 2, from the process's up to the root."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mount = root / "sys/fs/cgroup"
        if controllers == "":
            names = ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount, names = mount / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        inner = Path(path.lstrip("/"))
        for group in (inner, *inner.parents):  # in a container the path may be that outside, and only the root is there
            left = _left(mount / group, *names)
            if left is not None:
                yield f"/{group}".replace("/.", "/"), left


def _left(folder: Path, limit: str, used: str, reclaimable: str) -> int | None:
    """Bytes that a group leaves, with the file cache that it can drop; None where it has no limit."""
    try:
        most = (folder / limit).read_text().strip()
        if not most.isdigit():
            return None  # "max"
        taken = int((folder / used).read_text())
        stat = (folder / "memory.stat").read_text()
    except (OSError, ValueError):
        return None
    dropped = re.search(rf"^{reclaimable} (\d+)", stat, re.M)
    return max(0, int(most) - taken + (int(dropped[1]) if dropped else 0))
