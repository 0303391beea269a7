"""Runs a program with Landlock and seccomp, where namespaces are not available. A separate script that imports nothing
of this package, since a bare interpreter runs it.

    guard.py FILTER USER BOX READABLE PROGRAM [ARGUMENT]...

FILTER is a descriptor with a seccomp filter, USER a number or empty, BOX the writable folder, READABLE paths with ``:``
between them. The guard stays as the program's parent and the reaper of its orphans; when the program ends, it kills
the processes that the program left.
"""

import contextlib
import ctypes
import os
import signal
import struct
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
SET_PDEATHSIG, SET_SECCOMP, SET_NO_NEW_PRIVS, SET_CHILD_SUBREAPER = 1, 22, 38, 36
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
FILES_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All rights to files that each version of Landlock has."""
FOR_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | 1 << 15
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def call(number: int, *arguments: object) -> int:
    """A system call; raises `OSError` where it fails."""
    result = LIBC.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number} failed")
    return int(result)


def control(option: int, *arguments: int) -> None:
    """`prctl`; raises `OSError` where it fails."""
    if LIBC.prctl(option, *(ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4])):
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def version() -> int:
    """The version of Landlock here. Raises `OSError` where there is none."""
    return call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))


def rules(box: str, readable: list[str]) -> int:
    """Rules by which a process gives up every file but these, TCP, and, where Landlock can, signals and abstract
    sockets to the outside.
    """
    found = version()
    rights = FILES_BY_VERSION[max(v for v in FILES_BY_VERSION if v <= found)]
    network, scope = (3 if found >= 4 else 0), (3 if found >= 6 else 0)
    attributes = struct.pack("=QQQ", rights, network, scope)[: 24 if found >= 6 else 16 if found >= 4 else 8]
    ruleset = call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    for path in readable:
        allow(ruleset, path, rights & (EXECUTE | READ_FILE | READ_DIR))
    for path in DEVICES:
        allow(ruleset, path, READ_FILE | WRITE_FILE)
    allow(ruleset, box, rights)
    return ruleset


def allow(ruleset: int, path: str, rights: int) -> None:
    """Allow something below a path."""
    place = os.open(path, os.O_PATH)
    rights = rights if os.path.isdir(path) else rights & FOR_A_FILE
    call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), struct.pack("=Qi", rights, place), ctypes.c_uint(0))
    os.close(place)


def filter_calls(descriptor: int) -> None:
    """Installs the seccomp filter."""
    code = os.pread(descriptor, 1 << 16, 0)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    control(SET_SECCOMP, 2, ctypes.addressof(program))


def become(user: int) -> None:
    """Becomes another user, permanently."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def offspring(process: int) -> list[int]:
    """Living descendants of a process."""
    found = []
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children") as file:
                for child in map(int, file.read().split()):
                    found += [child, *offspring(child)]
    except OSError:  # the process has ended meanwhile
        pass
    return found


def main() -> int:
    """Starts the program, waits for it, and kills what it left."""
    descriptor, user, box, readable, *command = sys.argv[1:]
    parent = os.getppid()
    control(SET_PDEATHSIG, signal.SIGKILL)
    control(SET_CHILD_SUBREAPER, 1)
    ruleset = rules(box, readable.split(":"))
    child = os.fork()
    if child == 0:
        os.chdir(box)
        if user:
            become(int(user))
        control(SET_PDEATHSIG, signal.SIGKILL)  # forgotten with the user
        os.setsid()
        control(SET_NO_NEW_PRIVS, 1)
        call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
        filter_calls(int(descriptor))
        os.closerange(3, 1 << 16)
        for number in range(1, signal.NSIG):
            if number not in (signal.SIGKILL, signal.SIGSTOP) and number < 32:
                signal.signal(number, signal.SIG_DFL)
        os.execv(command[0], command)
    for stream in (0, 1, 2):
        os.close(stream)
    code = 0
    while os.getppid() == parent:
        process, status = os.wait()
        if process == child:
            code = os.waitstatus_to_exitcode(status)
            break
    while left := offspring(os.getpid()):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        time.sleep(0.002)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
