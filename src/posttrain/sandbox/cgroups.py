"""Control groups, versions 1 and 2: limits and accounting of memory, processes and CPU time.

Version 2 by itself is not enough: on machines in hybrid mode the controllers belong to version 1, and a limit that is
written to the other tree does nothing. So each controller is used from the tree that has it, below the group that this
process is in, and the start-up attacks test whether the limits hold.
"""

import contextlib
import itertools
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
PREFIX: Final = "posttrain-"
"""Groups are called ``posttrain-<process>-<number>``, so that those of dead processes can be removed."""
KINDS: Final = ("memory", "pids", "cpuacct")

_homes = itertools.count()


@dataclass(frozen=True, slots=True)
class Group:
    """The control groups of successive jobs, one folder for each controller (one for all in version 2)."""

    folders: dict[str, Path]
    """By controller; ``unified`` stands for all of them in version 2."""

    @property
    def processes(self) -> list[Path]:
        """The files by which a process enters the group."""
        return [folder / "cgroup.procs" for folder in self.folders.values()]

    def limit(self, memory_bytes: int, processes: int) -> None:
        """Sets the limits of an empty group. Raises `OSError` where the kernel refuses them.

        Processes that ended in it count until the machine's first process has reaped them, which may take seconds, so
        they are added to the limit.
        """
        counter = self.folders.get("unified") or self.folders["pids"]
        processes += int((counter / "pids.current").read_text())
        if unified := self.folders.get("unified"):
            _write(unified / "memory.max", memory_bytes)
            _write_if_there(unified / "memory.swap.max", 0)
            _write_if_there(unified / "memory.oom.group", 1)
            _write(unified / "pids.max", processes)
            return
        memory = self.folders["memory"]
        _write_if_there(memory / "memory.memsw.limit_in_bytes", -1)  # never below the other one
        _write(memory / "memory.limit_in_bytes", memory_bytes)
        _write_if_there(memory / "memory.memsw.limit_in_bytes", memory_bytes)
        _write(self.folders["pids"] / "pids.max", processes)

    def killed_for_memory(self) -> int:
        """How often the kernel has ended a process of this group because its memory was used up."""
        if unified := self.folders.get("unified"):
            return _counters(unified / "memory.events").get("oom_kill", 0)
        return _counters(self.folders["memory"] / "memory.oom_control").get("oom_kill", 0)

    def cpu_s(self) -> float:
        """Processor time of all processes that ever were in this group, in seconds."""
        if unified := self.folders.get("unified"):
            return _counters(unified / "cpu.stat").get("usage_usec", 0) / 1e6
        return int((self.folders["cpuacct"] / "cpuacct.usage").read_text()) / 1e9

    def members(self) -> set[int]:
        """Processes in the group."""
        found: set[int] = set()
        for file in self.processes:
            with contextlib.suppress(OSError):
                found |= {int(line) for line in file.read_text().split()}
        return found

    def empty(self, patience_s: float = 5.0) -> bool:
        """Kills the processes of the group until there are none; False if some stay."""
        deadline = time.monotonic() + patience_s
        while members := self.members():
            for process in members:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def remove(self) -> None:
        """Removes the group with its processes."""
        self.empty()
        for folder in self.folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()


class Home:
    """The groups of this process: a folder in each tree, in which a group is made for each job that runs at a time."""

    def __init__(self, parents: dict[str, Path]) -> None:
        name = f"{PREFIX}{os.getpid()}-{next(_homes)}"
        self._folders = {kind: parent / name for kind, parent in parents.items()}
        for parent in parents.values():
            sweep(parent)
        for kind, folder in self._folders.items():
            folder.mkdir(exist_ok=True)
            if kind == "unified":
                _write(folder / "cgroup.subtree_control", "+memory +pids")

    def group(self, name: str) -> Group:
        """A new group."""
        folders = {kind: folder / name for kind, folder in self._folders.items()}
        for folder in folders.values():
            folder.mkdir(exist_ok=True)
        return Group(folders)

    def remove(self) -> None:
        """Remove the folders; groups in them must have been removed."""
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()


def open_home() -> Home:
    """The home of groups. Raises `OSError` with the reason where this process may not create any."""
    return Home(_parents())


def remove_ended() -> None:
    """Remove the groups of processes that have ended: one that is killed, as a worker of graders is, leaves its own."""
    with contextlib.suppress(OSError):  # where no groups can be made, there are none
        for parent in _parents().values():
            sweep(parent)


def _parents() -> dict[str, Path]:
    """The groups that homes are made in, by controller. Raises `OSError` where this process may not create any."""
    own = _own_groups()
    unified = ROOT / own[""].lstrip("/") if "" in own and (ROOT / "cgroup.controllers").exists() else None
    if unified is not None:
        return {"unified": _delegated(unified)}
    missing = [kind for kind in KINDS if kind not in own or not (ROOT / kind).is_dir()]
    if missing:
        raise OSError(f"no control groups of version 1 for {', '.join(missing)}, and version 2 is not there")
    parents = {kind: ROOT / kind / own[kind].lstrip("/") for kind in KINDS}
    for kind, parent in parents.items():
        if not os.access(parent, os.W_OK):
            raise OSError(f"the control group {parent} ({kind}) belongs to another user")
    return parents


def sweep(parent: Path) -> None:
    """Removes the groups of processes that have ended."""
    for folder in parent.glob(f"{PREFIX}*"):
        process = folder.name.removeprefix(PREFIX).partition("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            with contextlib.suppress(OSError):  # another process may be sweeping too
                for group in [path for path in folder.iterdir() if path.is_dir()]:
                    Group({"any": group}).remove()
                folder.rmdir()


def _delegated(own: Path) -> Path:
    """The nearest group of version 2, from this process's own upwards, that delegates memory and pids."""
    for folder in (own, *own.parents):
        if not folder.is_relative_to(ROOT):
            break
        delegated = (folder / "cgroup.subtree_control").read_text().split()
        if {"memory", "pids"} <= set(delegated) and os.access(folder, os.W_OK):
            return folder
    raise OSError(
        f"no control group around {own} delegates its memory and pids controllers to this user (as an ordinary "
        "user: systemd-run --user --scope -p Delegate=yes ...)"
    )


def _own_groups() -> dict[str, str]:
    """This process's group by controller; version 2 is the empty name."""
    groups: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def _counters(file: Path) -> dict[str, int]:
    """A file of lines with a name and a number each."""
    pairs = [line.split() for line in file.read_text().splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _write(file: Path, value: int | str) -> None:
    file.write_text(f"{value}\n")


def _write_if_there(file: Path, value: int | str) -> None:
    with contextlib.suppress(OSError):
        if file.exists():
            _write(file, value)
