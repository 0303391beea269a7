"""The seccomp filter: the system calls that a sandboxed program may make.

Written out here, so that no library is needed: sixteen kinds of instruction, of which four are used. Calls that give a
program power over other processes, the kernel or the network are refused with EPERM; ``clone3``, whose flags a filter
cannot see, and calls that are newer than this list with ENOSYS, so that C libraries fall back to older ones.
"""

import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Instructions: load a word of the call, jump if equal, if at least, if any bit is set, end."""
NUMBER, ARCHITECTURE, ARGUMENT, HIGH_ARGUMENT = 0, 4, 16, 20
"""Offsets in the call's description; of arguments, the low and the high half of the first."""

NEW_NAMESPACES: Final = 0x7E020080
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
NEWEST = 462
"""The highest call number of Linux 6.8; the same on all architectures since 424."""


@dataclass(frozen=True, slots=True)
class Machine:
    """An architecture: its name for seccomp, and the numbers of its calls."""

    audit: int
    calls: dict[str, int]


_CALLS: Final = """
    ioctl 16 29, socket 41 198, socketpair 53 199, clone 56 220, ptrace 101 117, syslog 103 116, mknod 133 -,
    uselib 134 -, personality 135 92, vhangup 153 58, modify_ldt 154 -, pivot_root 155 41, adjtimex 159 171,
    chroot 161 51, acct 163 89, settimeofday 164 170, mount 165 40, umount2 166 39, swapon 167 224,
    swapoff 168 225, reboot 169 142, sethostname 170 161, setdomainname 171 162, iopl 172 -, ioperm 173 -,
    init_module 175 105, delete_module 176 106, quotactl 179 60, nfsservctl 180 42, lookup_dcookie 212 18,
    clock_settime 227 112, kexec_load 246 104, add_key 248 217, request_key 249 218, keyctl 250 219,
    migrate_pages 256 238, mknodat 259 33, unshare 272 97, move_pages 279 239, perf_event_open 298 241,
    fanotify_init 300 262, prlimit64 302 261, name_to_handle_at 303 264, open_by_handle_at 304 265,
    clock_adjtime 305 266, setns 308 268, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272,
    finit_module 313 273, memfd_create 319 279, kexec_file_load 320 294, bpf 321 280, userfaultfd 323 282,
    io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427, open_tree 428 428,
    move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, clone3 435 435,
    pidfd_getfd 438 438, process_madvise 440 440, mount_setattr 442 442, quotactl_fd 443 443,
    memfd_secret 447 447, process_mrelease 448 448
"""
"""Calls that the filter names, with their numbers on x86_64 and aarch64; ``-`` where there is none."""


def _numbered(column: int) -> dict[str, int]:
    rows = [entry.split() for entry in _CALLS.replace("\n", " ").split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


MACHINES: Final = {"x86_64": Machine(0xC000003E, _numbered(1)), "aarch64": Machine(0xC00000B7, _numbered(2))}
_WITH_ARGUMENTS: Final = frozenset(
    {"clone", "clone3", "ioctl", "memfd_create", "mknod", "mknodat", "personality", "prlimit64", "socket", "socketpair"}
)
"""Calls that are allowed for some arguments; all others that are named are refused."""


def supported() -> bool:
    """Whether the calls of this machine's architecture are known."""
    return platform.machine() in MACHINES


def number_of(call: str) -> int:
    """The number of a call on this machine."""
    return MACHINES[platform.machine()].calls[call]


def program(*, sockets: Sequence[int] = (AF_UNIX, AF_INET, AF_INET6), memory_files: bool = True) -> bytes:
    """The filter for this machine, as an array of ``struct sock_filter``.

    `sockets` are the families that may be opened: without a network of its own, a program must not have any.
    `memory_files` is whether files in memory that no path leads to may be made, where something else bounds them.
    """
    machine = MACHINES[platform.machine()]
    code = _Code()
    code.load(ARCHITECTURE)
    code.unless(EQUAL, machine.audit, KILL)
    code.load(NUMBER)
    code.when(AT_LEAST, NEWEST + 1, ERRNO | ENOSYS)  # x32 calls, which begin at 2**30, too
    for name, number in sorted(machine.calls.items(), key=lambda item: item[1]):
        if name not in _WITH_ARGUMENTS:
            code.when(EQUAL, number, ERRNO | EPERM)
    calls = machine.calls
    code.when(EQUAL, calls["clone3"], ERRNO | ENOSYS)
    if not memory_files:
        code.when(EQUAL, calls["memfd_create"], ERRNO | ENOSYS)
    code.on(calls["clone"], ARGUMENT, [(ANY_BIT, NEW_NAMESPACES, ERRNO | EPERM)], ALLOW)
    code.on(calls["ioctl"], ARGUMENT + 8, [(EQUAL, TIOCSTI, ERRNO | EPERM), (EQUAL, TIOCLINUX, ERRNO | EPERM)], ALLOW)
    code.on(calls["personality"], ARGUMENT, [(EQUAL, 0, ALLOW), (EQUAL, 0xFFFFFFFF, ALLOW)], ERRNO | EPERM)
    code.on(calls["prlimit64"], ARGUMENT, [(EQUAL, 0, ALLOW)], ERRNO | EPERM)
    code.on(calls["socket"], ARGUMENT, [(EQUAL, family, ALLOW) for family in sockets], ERRNO | EAFNOSUPPORT)
    code.on(calls["socketpair"], ARGUMENT, [(EQUAL, AF_UNIX, ALLOW)], ERRNO | EAFNOSUPPORT)
    code.end(ALLOW)
    return bytes(code.words)


class _Code:
    """Instructions in order; jumps are forward, and no longer than the few instructions they skip."""

    def __init__(self) -> None:
        self.words = bytearray()

    def _add(self, kind: int, value: int, then: int = 0, otherwise: int = 0) -> None:
        self.words += struct.pack("=HBBI", kind, then, otherwise, value)

    def load(self, offset: int) -> None:
        """Loads a word of the call."""
        self._add(LOAD, offset)

    def end(self, verdict: int) -> None:
        """Returns a verdict."""
        self._add(RETURN, verdict)

    def when(self, test: int, value: int, verdict: int) -> None:
        """Returns a verdict if the test holds."""
        self._add(test, value, 0, 1)
        self.end(verdict)

    def unless(self, test: int, value: int, verdict: int) -> None:
        """Returns a verdict if the test does not hold."""
        self._add(test, value, 1, 0)
        self.end(verdict)

    def on(self, call: int, offset: int, cases: Sequence[tuple[int, int, int]], otherwise: int) -> None:
        """For one call, returns the verdict of the first test that its argument passes."""
        self._add(EQUAL, call, 0, 2 + 2 * len(cases))
        self.load(offset)
        for test, value, verdict in cases:
            self.when(test, value, verdict)
        self.end(otherwise)
