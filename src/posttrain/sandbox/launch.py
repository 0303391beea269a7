"""The command line that starts a job in each tier.

Every way ends in the same small shell line (`CONFINED`), which sets the limits of a single process, writes one byte
to standard error when the isolation is complete, and becomes the program.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Literal

from posttrain.errors.temporary import make_temporary
from posttrain.sandbox import filters, fork_server
from posttrain.sandbox.cgroups import Group
from posttrain.sandbox.job import BOX, Job, Limits

Tier = Literal["cgroup", "namespaces", "landlock", "none"]
"""Tiers of isolation, strongest first; see `posttrain.sandbox.tiers`."""

READY: Final = b"\1"
"""The first byte of standard error, written once the isolation is complete and before the program runs."""
CONFINED: Final = (
    "limits=$1; processes=$2; shift 2; "
    'for limit in $limits; do ulimit "-${limit%%=*}" "${limit#*=}" || exit 125; done; '
    '{ ulimit -u "$processes" 2>/dev/null || ulimit -p "$processes"; } || exit 125; '
    "printf '\\001' >&2; exec \"$@\""
)
SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES: Final = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/openssl.cnf", "/etc/localtime")
"""What programs need of the machine, beside the system folders. None of it is secret."""
PYTHON_HOME: Final = "/python"
PYTHON_FLAGS: Final = ("-P", "-s", "-S", "-c")
"""Isolated like ``-I``, but for variables, which are all set here: ``-I`` would ignore PYTHONHASHSEED, and the order of
a set of words would be another one in every job.
"""
PATH: Final = "/usr/bin:/bin"
SAME_ORDER: Final = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}
"""Tables are in the same order in every run of a program, so that it prints the same and does the same work."""
NAMESPACES: Final = (
    "bwrap",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--hostname",
    "sandbox",
)
"""Ends with its parent, without a terminal or variables, isolated from all other processes."""
SHARED_MEMORY: Final = 4 << 20
"""Bytes of /dev/shm, which is beside the box; semaphores need it."""
INSIDE_ID: Final = "1000"
"""Number of the user inside, where the tier has user namespaces."""

_filter: Final = cache(filters.program)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The resources of one job at a time: a user of its own where this process is root, a control group if any."""

    user: int | None = None
    group: Group | None = None


@dataclass(slots=True, kw_only=True)
class Launch:
    """A command that starts a job, and what it needs until the job has ended."""

    command: list[str]
    descriptors: list[int]
    folder: Path | None = None
    """The box, where it is a folder of this machine."""
    environment: dict[str, str]


def launch(job: Job, limits: Limits, tier: Tier, lane: Lane) -> Launch:
    """The command for a job."""
    if tier in ("cgroup", "namespaces"):
        return _bubblewrap(job, limits, lane)
    return _without_namespaces(job, limits, tier, lane)


@cache
def python_folder() -> tuple[str, Path | None]:
    """The interpreter's path inside, and the folder that must be shown there; None where it is among the system's.

    The same Python as this one's, at a path of the sandbox's own: its folder may be in a home that other users may
    not enter.
    """
    binary, home = Path(sys.executable).resolve(), Path(sys.base_prefix).resolve()
    if any(home.is_relative_to(folder) for folder in SYSTEM_FOLDERS):
        return str(binary), None
    return f"{PYTHON_HOME}/{binary.relative_to(home)}", home


def python_job(
    script: bytes,
    *,
    stdin: bytes = b"",
    folders: Mapping[str, str] | None = None,
    warm: bool = False,
    shared: str = "",
) -> Job:
    """A Python program with the standard library, and no more, of the interpreter that runs this.

    `shared` is a trusted first part of the script, such as imports: forked jobs share one run of it.
    """
    binary, home = python_folder()
    text = script.decode()
    return Job(
        command=(binary, *PYTHON_FLAGS, f"{shared}\n{fork_server.SHARED}\n{text}" if shared else text),
        stdin=stdin,
        folders={**({PYTHON_HOME: str(home)} if home else {}), **(folders or {})},
        environment={"LD_LIBRARY_PATH": f"{PYTHON_HOME}/lib"} if home else {},
        warm=warm,
    )


def _bubblewrap(job: Job, limits: Limits, lane: Lane) -> Launch:
    """Namespaces by bubblewrap. As root without a user namespace, and then permanently as another user."""
    descriptors: list[int] = []
    words = list(NAMESPACES)
    if lane.user is None:
        words += ["--unshare-user", "--disable-userns", "--uid", INSIDE_ID, "--gid", INSIDE_ID]
    else:
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    words += _view(job)
    words += ["--dev", "/dev", "--size", str(SHARED_MEMORY), "--perms", "1777", "--tmpfs", "/dev/shm"]
    words += ["--remount-ro", "/dev", "--proc", "/proc"]
    words += ["--size", str(limits.disk_mb << 20), "--perms", "1777", "--tmpfs", BOX, "--symlink", BOX, "/tmp"]
    for name, content in job.files.items():
        descriptors.append(in_memory(content))
        words += ["--perms", "0777", "--file", str(descriptors[-1]), f"{BOX}/{name}"]
    words += ["--remount-ro", "/", "--chdir", BOX]
    descriptors.append(in_memory(_filter(memory_files=lane.group is not None)))
    words += ["--seccomp", str(descriptors[-1]), "--"]
    if lane.user is not None:
        own = str(lane.user)
        words += [
            "setpriv",
            "--reuid",
            own,
            "--regid",
            own,
            "--clear-groups",
            "--inh-caps=-all",
            "--no-new-privs",
            "--",
        ]
    words += _confined(job, limits, lane)
    if lane.group is not None:
        entered = "; ".join(f"echo 0 > {shlex.quote(str(file))}" for file in lane.group.processes)
        words = ["/bin/sh", "-ec", f'{entered}; exec "$@"', "sh", *words]
    return Launch(command=words, descriptors=descriptors, environment={"PATH": PATH + ":/usr/sbin"})


def fork_server_command(job: Job, words: Sequence[str], capabilities: Sequence[str]) -> list[str]:
    """The command of a fork server (`posttrain.sandbox.warm`), with the view of its jobs except what is mounted for
    each, and some of root's capabilities.
    """
    kept = ["--cap-drop", "ALL", *(word for name in capabilities for word in ("--cap-add", name))]
    places = ["--dev", "/dev", "--remount-ro", "/dev", "--dir", "/proc", "--dir", BOX, "--symlink", BOX, "/tmp"]
    ends = ["--remount-ro", "/", "--chdir", BOX, "--", *words]
    return [*NAMESPACES, "--as-pid-1", *kept, *_view(job), *places, *ends]


def _view(job: Job) -> list[str]:
    """The read-only view of the machine, and variables."""
    variables = [word for name, value in _environment(job).items() for word in ("--setenv", name, value)]
    return [*variables, *_system_view(), *_bound(tuple(job.folders.items()))]


@cache
def _system_view() -> list[str]:
    """The machine's programs and libraries, the same for every job."""
    words: list[str] = []
    for folder in SYSTEM_FOLDERS:
        if os.path.islink(folder):
            words += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            words += ["--ro-bind", folder, folder]
    return [*words, *_bound(tuple((file, file) for file in SYSTEM_FILES if os.path.exists(file)))]


@lru_cache
def _bound(shown: tuple[tuple[str, str], ...]) -> list[str]:
    """Folders and files, as (path inside, path on this machine), and the folders on the way to them."""
    words: list[str] = []
    made = set(SYSTEM_FOLDERS)
    for inside, outside in shown:
        for parent in reversed(Path(inside).parents[:-1]):
            if str(parent) not in made:
                made.add(str(parent))
                words += ["--perms", "0755", "--dir", str(parent)]
        words += ["--ro-bind", outside, inside]
    return words


def _without_namespaces(job: Job, limits: Limits, tier: Tier, lane: Lane) -> Launch:
    """A folder of this machine as the box; Landlock and seccomp by a small guard, or only limits."""
    box = make_temporary("box")
    for name, content in job.files.items():
        (box / name).parent.mkdir(parents=True, exist_ok=True)
        (box / name).write_bytes(content)
        (box / name).chmod(0o777)
    if lane.user is not None and tier == "landlock":
        os.chown(box, lane.user, lane.user)
    places = {**dict.fromkeys((*SYSTEM_FOLDERS, *SYSTEM_FILES)), **job.folders}
    command = [_outside(word, job, box) for word in _confined(job, limits, lane, counted=_own_processes(lane))]
    variables = {name: _outside(value, job, box) for name, value in _environment(job).items()}
    variables |= {"HOME": str(box), "TMPDIR": str(box)}
    if tier == "none":
        command = ["/bin/sh", "-ec", 'cd "$1"; shift; exec "$@"', "sh", str(box), *command]
        return Launch(command=command, descriptors=[], folder=box, environment=variables)
    descriptor = in_memory(_filter(sockets=(), memory_files=False))
    guard = Path(__file__).with_name("guard.py")
    readable = [str(outside or inside) for inside, outside in places.items() if os.path.exists(outside or inside)]
    words = [sys.executable, "-I", "-S", str(guard), str(descriptor), str(lane.user or ""), str(box)]
    words += [":".join(readable), *command]
    return Launch(command=words, descriptors=[descriptor], folder=box, environment=variables)


def _outside(word: str, job: Job, box: Path) -> str:
    """A word of the command with paths as they are on this machine."""
    for inside, outside in {**job.folders, BOX: str(box)}.items():
        if word == inside or word.startswith(f"{inside}/"):
            return outside + word[len(inside) :]
    return word


def _confined(job: Job, limits: Limits, lane: Lane, counted: int = 0) -> list[str]:
    """The program with limits of a single process; memory only where no control group bounds that of all processes."""
    values = limits_by_letter(limits)
    if lane.group is None:
        values["d"] = limits.memory_mb * 1024
    text = " ".join(f"{name}={value}" for name, value in values.items())
    return ["/bin/sh", "-c", CONFINED, "sh", text, str(limits.processes + counted), *job.command]


def limits_by_letter(limits: Limits) -> dict[str, int]:
    """Limits of a single process, by the letters of ``ulimit``: core, files, seconds, and file size in 512 bytes."""
    return {"c": 0, "n": 512, "t": int(limits.cpu_s) + 2, "f": limits.disk_mb * 2048}


def _environment(job: Job) -> dict[str, str]:
    fixed = {"PATH": PATH, "HOME": BOX, "TMPDIR": BOX, "LANG": "C.UTF-8", **SAME_ORDER}
    return {**fixed, **job.environment}


def in_memory(content: bytes) -> int:
    """A descriptor from which the content can be read."""
    descriptor = os.memfd_create("posttrain")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _own_processes(lane: Lane) -> int:
    """Running threads of this user, which a job's limit also counts where it has no user of its own."""
    if lane.user is not None:
        return 0
    count, own = 0, os.getuid()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and folder.stat().st_uid == own:
                count += len(os.listdir(folder / "task"))
        except OSError:  # it has ended meanwhile
            continue
    return count


def missing_programs(names: Sequence[str]) -> list[str]:
    """The programs that are not installed on the sandbox's path."""
    return [name for name in names if not shutil.which(name, path=PATH)]
