"""Fork server: forks isolated Python jobs from a running interpreter. A separate script that imports nothing of this
package, since a bare interpreter runs it, isolated itself (`posttrain.sandbox.warm`).

    python -P -s -S -c FORK_SERVER SOCKET TEMPLATE

TEMPLATE is a descriptor with what all jobs have in common, written by `marshal`: the script, the seccomp filter, the
number of the call ``clone``, and the words of the script's `sys.orig_argv`. SOCKET is a descriptor from
which requests come, each with the descriptors of a job: its standard streams, a pipe for its exit code, the control
groups to enter. Both are written by the supervisor. No byte that a job wrote is ever read here.

What comes before the line `SHARED` of a script is run here, once, before any request: libraries that every job would
load. The rest is run in each job, in the same namespace.

A job is two processes: the first of its process namespace, which has isolated itself irreversibly and waits, and the
program, forked from it. When either ends, the kernel kills the rest; when the fork server ends, all jobs end. The
program is that of ``python -c`` with the script, except for two frames at the bottom of its stack.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import _thread
import atexit
import ctypes
import fcntl
import gc
import marshal
import os
import resource
import struct
import sys
from types import CodeType, TracebackType

FRESH = {name: value for name, value in globals().items() if name.startswith("__")}
"""The initial content of a script's `__main__`, the same as this one's."""
collect, leave, run_at_exit, threads = gc.collect, os._exit, atexit._run_exitfuncs, _thread._count
"""Kept here, since a script may replace them."""
LIBC = ctypes.PyDLL(None, use_errno=True)
SET_DUMPABLE, SET_SECCOMP, DROP_BOUND, SET_NO_NEW_PRIVS = 4, 22, 24, 38
NEW_MOUNTS, NEW_GROUPS = 0x00020000, 0x02000000
NEW_NAMES, NEW_IPC, NEW_PROCESSES, NEW_NETWORK = 0x04000000, 0x08000000, 0x20000000, 0x40000000
NAMESPACES = NEW_MOUNTS | NEW_NAMES | NEW_IPC | NEW_PROCESSES | NEW_NETWORK
READ_ONLY, NO_SUID, NO_DEVICES, NO_PROGRAMS, RECURSIVE, PRIVATE = 1, 2, 4, 8, 1 << 14, 1 << 18
SET_INTERFACE, UP = 0x8914, 0x41
CAPABILITIES = {"CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SETPCAP": 8, "CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
"""The capabilities of root that this interpreter keeps; a job has none."""
VERSION_3 = 0x20080522
INTERRUPTED = _signal.getsignal(_signal.SIGINT)
"""The handler that a program inherits; SIGINT is ignored below a supervisor that ignores it."""
READY = b"\1"
BOX = "/box"
FAILED = 125
SHARED = "# What follows is run in each job."
Request = tuple[int, int, int, list[tuple[int, int]]]
"""The user of a job, the sizes of its box and of its shared memory in bytes, and its limits: kind and value."""


def checked(result: int, what: str) -> int:
    """The result of a call into the C library. Raises `OSError` where it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def control(option: int, *arguments: int) -> None:
    """`prctl`; raises `OSError` where it fails."""
    checked(LIBC.prctl(option, *(ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4])), f"prctl {option}")


def mount(kind: str, place: str, flags: int, options: str = "") -> None:
    """Mount a new file system. Raises `OSError` where that fails."""
    name = kind.encode()
    checked(LIBC.mount(name, place.encode(), name, ctypes.c_ulong(flags), options.encode()), f"mounting {place}")


def new_places(box_bytes: int, shared_bytes: int) -> None:
    """Mounts what is separate for each job: box, shared memory, terminals, and the view of processes."""
    mount("tmpfs", BOX, NO_SUID | NO_DEVICES, f"size={box_bytes},mode=1777")
    mount("tmpfs", "/dev/shm", NO_SUID | NO_DEVICES, f"size={shared_bytes},mode=1777")
    mount("devpts", "/dev/pts", NO_SUID | NO_PROGRAMS, "newinstance,ptmxmode=0666,mode=620")
    mount("proc", "/proc", NO_SUID | NO_DEVICES | NO_PROGRAMS | READ_ONLY)
    os.chdir(BOX)


def own_network() -> None:
    """Starts the loopback, the only interface of a new network namespace."""
    any_socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(any_socket.fileno(), SET_INTERFACE, struct.pack("16sh22x", b"lo", UP))
    any_socket.close()


def become(user: int) -> None:
    """Becomes another user, permanently, without any capability or a way to get one."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    checked(LIBC.capset(struct.pack("=Ii", VERSION_3, 0), bytes(24)), "capset")
    control(SET_NO_NEW_PRIVS, 1)


def drop_bounding_set() -> None:
    """Prevents all programs started from here from gaining a capability."""
    number = 0
    while LIBC.prctl(DROP_BOUND, *(ctypes.c_ulong(value) for value in (number, 0, 0, 0))) == 0:
        number += 1


def filter_calls(code: bytes) -> None:
    """Installs the seccomp filter."""
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    control(SET_SECCOMP, 2, ctypes.addressof(program))


def isolate(request: Request, groups: list[int], code: bytes) -> None:
    """Isolates the first process of the new namespaces. Raises `OSError` where a part fails."""
    user, box_bytes, shared_bytes, limits = request
    for group in groups:
        os.write(group, b"0")
    os.closerange(4, 1 << 16)
    checked(LIBC.unshare(NEW_GROUPS), "a namespace of control groups")
    new_places(box_bytes, shared_bytes)
    own_network()
    os.setsid()
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    # The first process of a namespace ignores signals from within that it does not handle.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    for kind, value in limits:
        resource.setrlimit(kind, (value, value))
    become(user)
    control(SET_DUMPABLE, 0)
    filter_calls(code)


def wait_for(program: int) -> None:
    """Waits until the program has ended, writes its exit code, and ends; the kernel kills the rest."""
    for stream in (0, 1, 2):
        os.close(stream)
    process = 0
    while process != program:
        process, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os.write(3, bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def become_program(request: Request, descriptors: list[int], code: bytes) -> None:
    """Continues as the program, which only has its standard streams; its parent never returns."""
    try:
        stdin, stdout, stderr, exit_code, *groups = descriptors
        for number, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, number)
        os.dup2(exit_code, 3)
        isolate(request, groups, code)
        program = os.fork()
        if program:
            try:
                wait_for(program)
            finally:
                os._exit(FAILED)
        os.close(3)
        control(SET_DUMPABLE, 1)
        _signal.signal(_signal.SIGINT, INTERRUPTED)
        os.write(2, READY)
    except BaseException as error:
        try:
            os.write(2, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(FAILED)


def serve(channel: _socket.socket, clone: int, code: bytes) -> None:
    """Serves requests until the socket is closed. Returns only in the program."""
    while True:
        text, passed, _, _ = channel.recvmsg(1 << 16, _socket.CMSG_SPACE(16 * 4))
        if not text:
            os._exit(0)
        descriptors = [number for _, _, data in passed for (number,) in struct.iter_unpack("i", data)]
        child = LIBC.syscall(clone, ctypes.c_ulong(NAMESPACES | _signal.SIGCHLD), None, None, None, None)
        if child == 0:
            channel.detach()
            become_program(marshal.loads(text), descriptors, code)
            return
        if child < 0:
            os.write(descriptors[2], f"no new process: {os.strerror(ctypes.get_errno())}".encode())
        for descriptor in descriptors:
            os.close(descriptor)


def compiled(script: str) -> CodeType | str:
    """The script's code; the script itself where it does not compile, so that its job reports the error."""
    try:
        return compile(script, "<string>", "exec")
    except (SyntaxError, ValueError):
        return script


def parts(script: str) -> tuple[str, str]:
    """What is run once, empty if nothing is, and what is run in each job, its lines where they are in the script."""
    shared, line, rest = script.partition(f"\n{SHARED}\n")
    return (shared, "\n" * (shared.count("\n") + 2) + rest) if line else ("", script)


def main_module() -> dict[str, object]:
    """The namespace of a new `__main__`, as a script finds it."""
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    space = vars(module)
    space.clear()
    space.update(FRESH, __doc__=None)
    return space


def main() -> tuple[CodeType | str, dict[str, object]]:
    """Prepares and serves; returns in the program: the code to run and its namespace."""
    channel, given = int(sys.argv[1]), int(sys.argv[2])
    with open(given, "rb") as file:
        script, words, clone, code = marshal.load(file)
    shared, own = parts(script)
    program = compiled(own)
    sys.argv, sys.orig_argv = ["-c"], list(words)
    for name in ("cache", "_interactive_cache"):  # from Python 3.13 on, tracebacks would show this script's lines
        getattr(sys.modules.get("linecache"), name, {}).clear()
    checked(LIBC.mount(None, b"/", None, ctypes.c_ulong(RECURSIVE | PRIVATE), None), "keeping mounts private")
    drop_bounding_set()
    if shared:
        space = main_module()
        exec(compile(shared, "<string>", "exec"), space)
        KNOWN.update(sys.modules.keys() - {"__main__"})
        FROZEN.append(space)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # jobs are not waited for
    gc.collect()
    gc.freeze()
    serve(_socket.socket(fileno=channel), clone, code)
    return program, FROZEN[0] if FROZEN else main_module()


def below(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without its outermost frame, which is this script's."""
    return trace and trace.tb_next


def flush() -> None:
    """Flush what the interpreter flushes when it ends."""
    sys.stdout.flush()
    sys.stderr.flush()


def end(code: int) -> None:
    """Ends as the interpreter does, but without freeing memory: most of it is shared with the fork server, and would be
    copied first, page by page. Returns where something is unusual; then the interpreter ends as usual.
    """
    if threads():
        return
    run_at_exit()
    try:
        flush()
        for name in [name for name in sys.modules if name not in KNOWN]:
            del sys.modules[name]
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        for space in FROZEN:
            space.clear()
        collect()
        flush()
    except BaseException:
        return
    leave(code)


KNOWN = {*sys.modules} - {"__main__"}
"""Modules that are there before a job."""
FROZEN: list[dict[str, object]] = []
"""The namespace of a script with a shared part, which is not collected at the end, since it is as old as that."""

if __name__ == "__main__":
    program, space = main()
    try:
        exec(program, space)
        code = 0
    except SystemExit as ending:
        if ending.code is not None and (type(ending.code) is not int or ending.code >> 31):
            raise
        code = ending.code or 0
    except BaseException:
        shown = sys.excepthook
        sys.excepthook = lambda kind, error, trace: shown(kind, error.with_traceback(below(trace)), below(trace))
        raise
    del program, space
    end(code & 0xFF)
    raise SystemExit(code)
