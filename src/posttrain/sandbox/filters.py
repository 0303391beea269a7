"""The system calls that a program in the sandbox may make, as a seccomp filter in the kernel's own byte code.

Written out here, so that no library is needed: sixteen kinds of instruction, of which four are used. Calls that hand a
program power over other processes, the kernel or the network are refused with EPERM; ``clone3``, whose flags a filter
cannot see, and calls that are newer than this list with ENOSYS, so that C libraries fall back on older ones.
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


def _numbered(numbers: Sequence[int | None]) -> dict[str, int]:
    return {name: n for name, n in zip(_NAMES, numbers, strict=True) if n is not None}


_NAMES: Final = """
    clone ioctl socket socketpair
    ptrace process_vm_readv process_vm_writev kcmp add_key request_key keyctl bpf perf_event_open userfaultfd mount
    umount2 pivot_root unshare setns kexec_load kexec_file_load init_module finit_module delete_module reboot swapon
    swapoff acct settimeofday clock_settime clock_adjtime adjtimex syslog quotactl name_to_handle_at open_by_handle_at
    personality migrate_pages move_pages chroot lookup_dcookie nfsservctl fanotify_init vhangup sethostname
    setdomainname mknodat memfd_create prlimit64 modify_ldt iopl ioperm uselib mknod
    """.split()
_EVERYWHERE: Final = {
    name: number
    for name, number in zip(
        "io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick clone3 "
        "pidfd_getfd process_madvise mount_setattr quotactl_fd memfd_secret process_mrelease".split(),
        (425, 426, 427, 428, 429, 430, 431, 432, 433, 435, 438, 440, 442, 443, 447, 448),
        strict=True,
    )
}
_X86_64 = (
    *(56, 16, 41, 53),
    *(101, 310, 311, 312, 248, 249, 250, 321, 298, 323, 165),
    *(166, 155, 272, 308, 246, 320, 175, 313, 176, 169, 167),
    *(168, 163, 164, 227, 305, 159, 103, 179, 303, 304),
    *(135, 256, 279, 161, 212, 180, 300, 153, 170),
    *(171, 259, 319, 302, 154, 172, 173, 134, 133),
)
_AARCH64 = (
    *(220, 29, 198, 199),
    *(117, 270, 271, 272, 217, 218, 219, 280, 241, 282, 40),
    *(39, 41, 97, 268, 104, 294, 105, 273, 106, 142, 224),
    *(225, 89, 170, 112, 266, 171, 116, 60, 264, 265),
    *(92, 238, 239, 51, 18, 42, 262, 58, 161),
    *(162, 33, 279, 261, None, None, None, None, None),
)
MACHINES: Final = {
    "x86_64": Machine(0xC000003E, _numbered(_X86_64) | _EVERYWHERE),
    "aarch64": Machine(0xC00000B7, _numbered(_AARCH64) | _EVERYWHERE),
}
_LOOKED_AT: Final = frozenset(
    "clone clone3 ioctl memfd_create mknod mknodat personality prlimit64 socket socketpair".split()
)
"""Calls whose answer depends on something; all others that are named are refused."""


def supported() -> bool:
    """Whether the calls of this machine's architecture are known."""
    return platform.machine() in MACHINES


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
        if name not in _LOOKED_AT:
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
        """Look at a word of the call."""
        self._add(LOAD, offset)

    def end(self, verdict: int) -> None:
        """Decide."""
        self._add(RETURN, verdict)

    def when(self, test: int, value: int, verdict: int) -> None:
        """Decide if the test holds, else go on."""
        self._add(test, value, 0, 1)
        self.end(verdict)

    def unless(self, test: int, value: int, verdict: int) -> None:
        """Decide if the test does not hold, else go on."""
        self._add(test, value, 1, 0)
        self.end(verdict)

    def on(self, call: int, offset: int, cases: Sequence[tuple[int, int, int]], otherwise: int) -> None:
        """For one call, decide by the first test that its argument passes."""
        self._add(EQUAL, call, 0, 2 + 2 * len(cases))
        self.load(offset)
        for test, value, verdict in cases:
            self.when(test, value, verdict)
        self.end(otherwise)
