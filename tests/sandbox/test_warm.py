"""Warm Python jobs: they give what others give, carry nothing over, and leave nothing, whatever happens to whom."""

import ast
import contextlib
import os
import re
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.sandbox import Job, Limits, Pool, Result, attacks, find_tier, fork_server, python_job, supervise, tiers
from posttrain.sandbox.attacks import Finding
from posttrain.sandbox.processes import descendants
from posttrain.sandbox.warm import MOST_FORK_SERVERS, can_fork
from tests.sandbox.supervised import supervisor, until

ROOMY = Limits(cpu_s=20.0, wall_s=120.0)
PROGRAMS = {
    "returns": "import sys; print(sys.stdin.read()[::-1])",
    "code": "raise SystemExit(7)",
    "text as code": "import sys; sys.exit('some text')",
    "huge code": "raise SystemExit(2**40)",
    "negative code": "raise SystemExit(-1)",
    "true as code": "raise SystemExit(True)",
    "exception": "def f(): return 1 / 0\nf()",
    "two exceptions": "try: 1 / 0\nexcept ZeroDivisionError as error: raise KeyError('x') from error",
    "no program": "x = (",
    "interrupt": "raise KeyboardInterrupt",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hooked', a[0], a[2].tb_next)\n1 / 0",
    "hook that exits": "import sys\nsys.excepthook = lambda *a: sys.exit(9)\n1 / 0",
    "thread goes on": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start(); print('main')",
    "daemon thread": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); print('main')",
    "child waited for": "import os\nif os.fork() == 0:\n    print('child', flush=True); os._exit(3)\n"
    "print(os.wait()[1])",
    "child goes to the end": "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\nprint(child > 0)",
    "child left alone": "import os, time\nif os.fork() == 0: time.sleep(60)\nprint('parent')",
    "big output": "import sys; print('x' * 300_000); sys.stderr.write('y' * 200_000)",
    "no end of recursion": "def f(n): return f(n + 1)\nf(0)",
    "deep recursion": "import sys; sys.setrecursionlimit(5000)\ndef f(n): return n and f(n - 1)\nprint(f(4500))",
    "kills itself": "import os; print('a', flush=True); os.kill(os.getpid(), 9)",
    "terminates itself": "import os; os.kill(os.getpid(), 15)",
    "aborts": "import os; os.abort()",
    "faults": "import ctypes; ctypes.string_at(0)",
    "own exit": "import os; print('lost'); os._exit(5)",
    "closed output": "import os; os.close(1); print('x')",
    "closed stream": "import sys; print('kept'); sys.stdout.close()",
    "closed error": "import sys; sys.stderr.close(); print(1)",
    "reads twice": "import sys; print([sys.stdin.read(), sys.stdin.read()])",
    "reads lines": "print(input(), input())\nprint(input())",
    "names": "import sys, __main__\n"
    "print(__name__, sorted(globals()), __main__.__dict__ is globals(), __doc__, __spec__, __loader__, __package__)",
    "arguments": "import sys\n"
    "print(sys.argv, sys.orig_argv, sys.flags, sys.path, sys.executable, sys.getrecursionlimit())",
    "streams": "import sys; print(sys.stdin, sys.stdout, sys.stderr.errors, sys.stdout.line_buffering)",
    "pickles": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "at exit": "import atexit\natexit.register(print, 'bye'); print('hi')",
    "at exit fails": "import atexit, sys\natexit.register(lambda: 1 / 0); sys.exit(3)",
    "destructors": "class A:\n    def __del__(self): print('gone', len.__name__)\n"
    "a = A(); b = [A()]; b.append(b)\ndef f(): return a",
    "unflushed file": "import os; file = os.fdopen(os.dup(1), 'w'); file.write('unflushed')",
    "other output": "import io, sys; print('a'); sys.stdout = io.StringIO(); print('b')",
    "calls taken away": "import atexit, builtins, gc, os, sys\nfor name in dir(os):\n"
    "    if callable(getattr(os, name)) and name != 'fspath': setattr(os, name, None)\n"
    "builtins.exit = gc.collect = sys.exit = atexit._run_exitfuncs = None; print('guarded')",
    "variables": "import os; print(sorted(os.environ.items()), os.getcwd(), os.umask(0))",
    "numbers": "import os; print(os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0), os.getgroups())",
    "signals": "import signal; print([str(signal.getsignal(number)) for number in range(1, 32)])",
    "limits": "import resource as r; print([r.getrlimit(kind) for kind in range(16) if kind != r.RLIMIT_NPROC])",
    "machine": "import os; print(os.uname().nodename, os.listdir('/'), os.listdir('/dev'), os.listdir('.'))",
    "box": "import os; print([(oct(os.stat(p).st_mode), os.statvfs(p).f_blocks) for p in ('/box', '/dev/shm')])",
    "groups": "print(open('/proc/self/cgroup').read())",
    "hashes": "print(hash('a'), {'x', 'y', 'z', 'w'})",
    "subprocess": "import subprocess\n"
    "print(subprocess.run(['sh', '-c', 'cat; exit 3'], input=b'z', capture_output=True))",
    "another program": "import os; os.execv('/bin/echo', ['echo', 'hello'])",
    "loopback": "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
    "print(socket.create_connection(server.getsockname()).getpeername()[0])",
    "terminal": "import os, pty; print(os.ttyname(pty.openpty()[1]))",
    "event loop": "import asyncio\nasync def f(): await asyncio.sleep(0.01); print('x')\nasyncio.run(f())",
    "processes": "import multiprocessing as m\n"
    "with m.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))",
}
LIMITED = {
    "timeout_cpu": ("while True: pass", Limits(cpu_s=0.3, wall_s=120.0)),
    "timeout_wall": ("import time; time.sleep(100)", Limits(wall_s=0.5)),
    "output_limit": ("while True: print('x' * 1000)", Limits(cpu_s=20.0, wall_s=120.0, output_kb=10)),
    "memory": ("x = [b'x' * (1 << 20) for _ in range(500)]", Limits(cpu_s=20.0, wall_s=120.0, memory_mb=64)),
}
STATUS = "print(open('/proc/self/status').read())"


@pytest.fixture(scope="module")
def forking() -> Iterator[Pool]:
    if reason := find_tier().why_no_forks:
        pytest.skip(reason)
    made = Pool(find_tier().tier, 1)
    yield made
    made.close()


def warm(script: str, stdin: bytes = b"") -> Job:
    return python_job(script.encode(), stdin=stdin, warm=True)


def claims(result: Result) -> tuple[object, ...]:
    """What a job gave; of a traceback the last line, and no addresses."""
    last = re.sub(rb"0x[0-9a-f]+", b"", result.stderr)
    if b"Traceback" in last:
        last = last.splitlines()[-1]
    return result.outcome, result.exit_code, result.stdout, last


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_forked_job_gives_what_a_started_one_gives(forking: Pool, name: str) -> None:
    job = warm(PROGRAMS[name], b"first\nsecond\nthird")
    started = forking.run(replace(job, warm=False), ROOMY)
    assert started.outcome in ("ok", "nonzero")
    assert claims(forking.run(job, ROOMY)) == claims(started)


@pytest.mark.parametrize("outcome", LIMITED)
@pytest.mark.slow
def test_limits_have_names_for_forked_jobs_too(forking: Pool, outcome: str) -> None:
    script, limits = LIMITED[outcome]
    result = forking.run(warm(script), limits)
    assert (result.outcome, result.exit_code) == (outcome, None) and result.explanation
    assert forking.run(warm("print(1)"), ROOMY).stdout == b"1\n"


def test_a_forked_job_has_given_up_every_right_for_good(forking: Pool) -> None:
    lines = forking.run(warm(STATUS), ROOMY).stdout.decode().splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    user = status["Uid"][0]
    assert int(user) in {lane.user for lane in forking._opened[0].lanes} - {0}
    assert status["Uid"] == status["Gid"] == [user] * 4 and status["Groups"] in ([], [user])
    assert all(int(status[f"Cap{kind}"][0], 16) == 0 for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"))
    assert (status["NoNewPrivs"], status["Seccomp"], status["NSpid"]) == (["1"], ["2"], ["2"])


def test_the_interpreter_that_jobs_are_forked_from_keeps_of_root_what_it_needs(forking: Pool) -> None:
    assert forking.run(warm("print(1)"), ROOMY).outcome == "ok"
    (above,) = descendants(forking._opened[0].servers.kept[-1]._process.pid)[1:2]
    lines = dict(line.split(":\t") for line in Path(f"/proc/{above}/status").read_text().splitlines() if "Cap" in line)
    needed = sum(1 << number for number in fork_server.CAPABILITIES.values())
    assert [int(lines[f"Cap{kind}"], 16) for kind in ("Prm", "Eff", "Bnd")] == [needed, needed, 0]


def test_a_forked_job_cannot_look_into_the_process_above_it(forking: Pool) -> None:
    script = """
import os
for name in ("mem", "maps", "environ", "auxv", "fd", "fd/3", "ns/pid", "oom_score_adj"):
    for mode in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.listdir("/proc/1/fd") if name == "fd" else os.open(f"/proc/1/{name}", mode)
            if (name, mode) != ("oom_score_adj", os.O_RDONLY):  # which everybody may read, of every process
                print("opened", name, mode)
        except OSError:
            pass
print(os.stat("/proc/1/maps").st_uid == os.getuid(), os.stat("/proc/self/maps").st_uid == os.getuid())
"""
    assert forking.run(warm(script), ROOMY).stdout == b"False True\n"


def test_a_forked_job_shares_no_namespace_and_no_writable_place_with_what_it_was_forked_from(forking: Pool) -> None:
    script = """
import os, sys
sys.stdin.read()
print([os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "net", "pid", "ipc", "uts", "cgroup")])
print([os.stat(place).st_dev for place in ("/box", "/dev/shm", "/dev/pts", "/proc")])
"""
    first, second = (ast.literal_eval(line) for line in forking.run(warm(script), ROOMY).stdout.decode().splitlines())
    (above,) = descendants(forking._opened[0].servers.kept[-1]._process.pid)[1:2]
    for spaces in (Path("/proc", str(above), "ns"), Path("/proc/self/ns")):
        assert not {os.readlink(path) for path in spaces.iterdir()} & set(first)
    for place in ("box", "dev/shm", "dev/pts", "proc"):
        assert os.stat(f"/proc/{above}/root/{place}").st_dev not in second


def test_jobs_of_many_templates_keep_few_interpreters(forking: Pool) -> None:
    for number in range(MOST_FORK_SERVERS + 2):
        assert forking.run(warm(f"print({number})"), ROOMY).stdout == f"{number}\n".encode()
    slot = forking._opened[0]
    assert len(slot.servers.kept) == MOST_FORK_SERVERS
    kept = slot.servers.kept[-1]
    assert forking.run(warm(f"print({MOST_FORK_SERVERS + 1})"), ROOMY).outcome == "ok"
    assert slot.servers.kept[-1] is kept


def test_only_warm_python_jobs_without_files_are_forked() -> None:
    assert can_fork(warm("pass"))
    assert not can_fork(replace(warm("pass"), warm=False))
    assert not can_fork(replace(warm("pass"), files={"name": b""}))
    assert not can_fork(Job(command=("cat",), warm=True))


SHARED = "import json, os\ntoken, seen = os.urandom(8).hex(), []\n"


def test_jobs_share_one_run_of_the_first_part_and_no_change_of_it(forking: Pool) -> None:
    job = python_job(
        b"import sys\nsys.stdin.read(); seen.append(1); json.dumps = None\nprint(token, seen, __name__)",
        warm=True,
        shared=f"{SHARED}json.dumps(1)",
    )
    first, again = (forking.run(job, ROOMY) for _ in range(2))
    assert first.stdout == again.stdout and first.stdout.endswith(b"[1] __main__\n")
    started = forking.run(replace(job, warm=False), ROOMY).stdout
    assert started.endswith(b"[1] __main__\n") and started != first.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["destructors", "at exit", "exception", "names", "pickles", "thread goes on"])
def test_a_job_with_a_shared_part_ends_as_a_started_one(forking: Pool, name: str) -> None:
    job = python_job(PROGRAMS[name].encode(), warm=True, shared="import json")
    assert claims(forking.run(job, ROOMY)) == claims(forking.run(replace(job, warm=False), ROOMY))


def test_lines_of_a_job_with_a_shared_part_are_those_of_the_script(forking: Pool) -> None:
    job = python_job(b"def f(): 1 / 0\n\nf()", warm=True, shared=SHARED)
    lines = [re.findall(rb"line (\d+)", forking.run(own, ROOMY).stderr) for own in (job, replace(job, warm=False))]
    assert lines[0] == lines[1] == [b"7", b"5"]


@pytest.mark.slow
def test_a_shared_part_that_fails_is_no_verdict(forking: Pool) -> None:
    result = forking.run(python_job(b"print(1)", warm=True, shared="raise KeyError('lost')"), ROOMY)
    assert result.outcome == "sandbox_error" and "KeyError: 'lost'" in result.explanation


@pytest.mark.slow
def test_slots_fork_from_one_interpreter_where_that_is_asked_for(forking: Pool) -> None:
    pool = Pool(forking.tier, 3, one_server=True)
    try:
        job = python_job(b"import sys, time; time.sleep(0.2); print(token, sys.stdin.read())", warm=True, shared=SHARED)

        def tokens() -> set[bytes]:
            waiting = [pool.submit(replace(job, stdin=str(n).encode()), ROOMY) for n in range(6)]
            lines = [own.result().stdout.split() for own in waiting]
            assert [number for _, number in lines] == [str(n).encode() for n in range(6)]
            return {token for token, _ in lines}

        before = tokens()
        assert len(before) == 1 and len({id(slot.servers) for slot in pool._opened}) == 1 < len(pool._opened)
        _kill(pool)
        assert tokens() - before  # another interpreter has taken its place
    finally:
        pool.close()


@pytest.mark.slow
def test_isolation_of_the_interpreter_that_fails_is_no_verdict(forking: Pool) -> None:
    job = replace(warm("print(1)"), folders={"/shown": "/no/such/folder"})
    result = forking.run(job, ROOMY)
    assert result.outcome == "sandbox_error" and "/no/such/folder" in result.explanation


@pytest.mark.slow
def test_isolation_of_a_job_that_fails_is_no_verdict(forking: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if beyond == resource.RLIM_INFINITY:
        pytest.skip("open files are not limited here")
    monkeypatch.setattr("posttrain.sandbox.warm.LETTERS", {**_letters(), "n": (resource.RLIMIT_NOFILE, beyond)})
    result = forking.run(warm("print(2)"), ROOMY)
    assert result.outcome == "sandbox_error" and "Error" in result.explanation and not result.stdout


def _letters() -> dict[str, tuple[int, int]]:
    from posttrain.sandbox.warm import LETTERS

    return dict(LETTERS)


def test_a_job_that_has_hardly_started_is_ended_without_a_wait(forking: Pool) -> None:
    """Other memory needs another job than the one that waits. One of the eight may take long on a busy machine."""
    job, seconds = warm("import sys; print(sys.stdin.read(), end='')", b"x"), []
    for number in range(8):
        begun = time.monotonic()
        assert forking.run(job, replace(ROOMY, memory_mb=256 + number)).stdout == b"x"
        seconds.append(time.monotonic() - begun)
    assert min(seconds[1:]) < supervise.DRAIN_S


def test_a_job_that_waits_is_used_with_less_time_and_its_own_limits_hold(forking: Pool) -> None:
    spins = warm("import sys\nif sys.stdin.read() == 'x':\n    while True: pass\nprint('y' * 3000)", b"x")
    forking.run(replace(spins, stdin=b""), ROOMY)
    waiting = forking._opened[0].spare
    assert waiting is not None and waiting.limits == ROOMY
    less = replace(ROOMY, cpu_s=0.3, output_kb=1)
    assert forking.run(spins, less).outcome == "timeout_cpu" and waiting.limits == less
    assert forking.run(replace(spins, stdin=b""), less).outcome == "output_limit"
    again = forking._opened[0].spare
    assert again is not None and not supervise.adopted(again, again.job, replace(ROOMY, cpu_s=60.0))
    assert not supervise.adopted(again, again.job, replace(ROOMY, processes=3))


def test_an_interpreter_that_was_killed_is_replaced_and_the_job_tried_again(forking: Pool) -> None:
    job = warm("import sys; print(sys.stdin.read())", b"right")
    assert forking.run(job, ROOMY).stdout == b"right\n"
    _kill(forking)
    assert forking.run(job, ROOMY).stdout == b"right\n"  # the one that waited has died with it


@pytest.mark.slow
def test_an_interpreter_that_is_killed_under_a_running_job_changes_nothing(forking: Pool) -> None:
    slow = warm("import sys, time; time.sleep(1); print(sys.stdin.read())", b"right")
    assert forking.run(slow, ROOMY).outcome == "ok"
    waiting = forking.submit(slow, ROOMY)
    time.sleep(0.3)
    _kill(forking)
    result = waiting.result()
    assert (result.outcome, result.stdout) == ("ok", b"right\n")


def test_where_forks_do_not_hold_warm_jobs_are_started(monkeypatch: pytest.MonkeyPatch, forking: Pool) -> None:
    real = attacks.run

    def leaky(pool: Pool, chosen: list[attacks.Attack], *, warm: bool = False) -> Iterator[Finding]:
        for finding in real(pool, chosen[:1], warm=warm):
            yield replace(finding, verdict="escaped", explanation="by a hole") if warm else finding

    monkeypatch.setattr(attacks, "run", leaky)
    found = tiers.find_tier.__wrapped__()
    assert found.tier == find_tier().tier and "by a hole" in found.why_no_forks
    assert "by a hole" in found.record()["warm_jobs"] and find_tier().record()["warm_jobs"] == "forked"
    pool = Pool(found.tier, 1, forks=not found.why_no_forks)
    try:
        assert [pool.run(warm("print(input())", b"1"), ROOMY).stdout for _ in range(2)] == [b"1\n"] * 2
        assert not pool._opened[0].servers.kept
    finally:
        pool.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thousand_jobs_leave_nothing(forking: Pool) -> None:
    forking.run(Job(command=("true",)), ROOMY)  # after which no job of this pool waits
    before = _traces()
    pool = Pool(forking.tier, 2)
    job = warm("import os, sys, time\nprint(sys.stdin.read(), flush=True)\nif os.fork() == 0: time.sleep(60)")
    try:
        for number in range(20):
            assert pool.run(replace(job, stdin=b"%d" % number), ROOMY).outcome == "ok"
        both = [pool.submit(replace(job, stdin=b"x"), ROOMY) for _ in range(8)]
        assert [done.result().outcome for done in both] == ["ok"] * 8
        # In each slot an interpreter behind bubblewrap, and a job that waits: its first process and the program.
        until(lambda: len(descendants(os.getpid())) == before["processes"] + 1 + 2 * 4)
        running = _traces()
        waiting = [pool.submit(replace(job, stdin=b"%d" % number), ROOMY) for number in range(1000)]
        assert [done.result().stdout for done in waiting] == [b"%d\n" % number for number in range(1000)]
        until(lambda: not _more_than(running))
    finally:
        pool.close()
    until(lambda: not _more_than(before))


def _more_than(before: dict[str, int]) -> dict[str, int]:
    """What there is more of than before. Less may be there: what earlier tests left to the garbage collector ends."""
    return {name: count - before[name] for name, count in _traces().items() if count > before[name]}


def _traces() -> dict[str, int]:
    """What this process has beside itself."""
    processes = descendants(os.getpid())[1:]
    spaces = set()
    for process in processes:
        with contextlib.suppress(OSError):
            spaces |= {os.readlink(f"/proc/{process}/ns/{kind}") for kind in ("mnt", "net", "pid", "ipc")}
    groups = list(Path("/sys/fs/cgroup").glob(f"**/posttrain-{os.getpid()}-*/*/cgroup.procs"))
    boxes = list(Path("/tmp").glob(f"posttrain-box-{os.getpid()}-*"))
    mounts = Path("/proc/self/mounts").read_text().count("\n")
    files = len(os.listdir("/proc/self/fd"))
    return {
        "processes": len(processes), "namespaces": len(spaces), "open files": files, "mounts": mounts,
        "groups": len(groups), "boxes": len(boxes),
    }  # fmt: skip


@pytest.mark.slow
def test_nothing_is_left_of_forked_jobs_when_the_supervisor_is_killed(forking: Pool) -> None:
    process = supervisor(
        """
        from posttrain.sandbox import Limits, Pool, python_job
        pool = Pool("cgroup", 1)
        pool.run(python_job(b"print(1)", warm=True))
        left = b"import os, time\\nif os.fork() == 0: os.setsid()\\ntime.sleep(999)"
        pool.submit(python_job(left, warm=True), Limits(wall_s=999))
        """
    )
    # Two interpreters, each behind bubblewrap; a job of three processes.
    until(lambda: len(descendants(process.pid)) >= 1 + 4 + 3)
    left = descendants(process.pid)[1:]
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(Path("/proc", str(number)).exists() for number in left))


def _kill(pool: Pool) -> None:
    """Kill the interpreters that jobs are forked from, as the kernel might for want of memory."""
    for kept in pool._opened[0].servers.kept:
        for process in descendants(kept._process.pid)[1:2]:
            os.kill(process, signal.SIGKILL)
