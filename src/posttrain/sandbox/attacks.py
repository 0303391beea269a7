"""Hostile programs, and whether the sandbox contained each; docs/trust.md is made from the results.

Each is a Python script that prints ``ESCAPED`` where it succeeds. What a script cannot measure, `run` checks from
outside: whether a victim still lives, a file was changed, a process stayed behind, the program was stopped for the
correct reason, and whether the next job was undisturbed. The scripts are in `hostile/`; their first lines have fields:

    #: promise      one of `PROMISES`
    #: ends         outcomes that count as contained; any if empty
    #: wall         limit on the clock in seconds, where a time-out is expected
    #: times        how often it is run in a row, to find what an earlier run left
    #: startup      run whenever a process first opens a sandbox
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal, get_args

from posttrain.errors.temporary import temporary_folder
from posttrain.sandbox.job import Job, Limits, Outcome, Result
from posttrain.sandbox.launch import python_job
from posttrain.sandbox.pool import Pool

PROMISES: Final = {
    "files": "of this machine only programs and libraries can be read",
    "writes": "nothing of this machine can be changed",
    "secrets": "no secret of this process can be seen: variables, open files, memory",
    "network": "nothing can be reached: no network, no socket of another program",
    "processes": "processes are bounded in number, and no other process can be touched",
    "memory": "memory of all processes together is bounded",
    "disk": "files together are bounded",
    "output": "output is bounded, and not held open",
    "cpu": "processor time of all processes together is bounded",
    "wall": "time on the clock is bounded",
    "kernel": "calls that widen the surface of the kernel are refused",
    "leftovers": "nothing is left behind, and what was left cannot harm those who clear up",
    "outcome": "a program cannot lie about how it ended",
}
LIMITS: Final = Limits(cpu_s=1.0, wall_s=60.0, memory_mb=128, processes=24, disk_mb=8, output_kb=64)
MARK: Final = "posttrain-canary"
"""The word in variables, files and arguments that the scripts search for."""

WARM: Final = b"import sys\nexec(compile(sys.stdin.read(), '<attack>', 'exec'))"
"""The trusted script of warm jobs: attacks are its input, so that one interpreter runs them all."""

Verdict = Literal["contained", "escaped", "broken"]
"""``broken``: the sandbox failed, or the job after the attack did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """A hostile program."""

    name: str
    summary: str
    promise: str
    ends: frozenset[Outcome]
    wall_s: float
    times: int
    startup: bool
    script: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one attack."""

    attack: str
    promise: str
    verdict: Verdict
    outcome: Outcome
    explanation: str = ""


@cache
def all_attacks() -> tuple[Attack, ...]:
    """Every attack, by name."""
    return tuple(_read(path) for path in sorted(Path(__file__).with_name("hostile").glob("*.txt")))


def at_startup(but: Collection[str] = ()) -> list[Attack]:
    """The attacks before a sandbox is trusted, without those against promises that a tier does not make."""
    return [attack for attack in all_attacks() if attack.startup and attack.promise not in but]


def _read(path: Path) -> Attack:
    script = path.read_text()
    header = dict(line[3:].partition(": ")[::2] for line in script.splitlines() if line.startswith("#: "))
    ends: list[Outcome] = [word for word in get_args(Outcome) if word in header.get("ends", "").split()]
    return Attack(
        name=path.stem,
        summary=header["does"].strip(),
        promise=header["promise"].strip(),
        ends=frozenset(ends or get_args(Outcome)) - {"sandbox_error"},
        wall_s=float(header.get("wall", LIMITS.wall_s)),
        times=int(header.get("times", 1)),
        startup="startup" in header,
        script=script,
    )


def run(pool: Pool, attacks: Iterable[Attack], *, warm: bool = False) -> Iterator[Finding]:
    """Runs attacks as warm or other jobs, each followed by a harmless job that must be undisturbed."""
    job = _warm if warm else python_job
    harmless = _warm(b"print('next', end='')") if warm else Job(command=("cat",), stdin=b"next")
    with _Targets() as targets:
        for attack in attacks:
            limits = replace(LIMITS, wall_s=attack.wall_s)
            for _ in range(attack.times):
                result = pool.run(job(targets.with_constants(attack.script).encode()), limits)
                verdict, explanation = _verdict(attack, result, targets)
                if verdict != "contained":
                    break
            after = pool.run(harmless, LIMITS)
            if (after.outcome, after.stdout) != ("ok", b"next"):
                verdict, explanation = "broken", f"the next job: {after.outcome} {after.explanation}"
            yield Finding(
                attack=attack.name,
                promise=attack.promise,
                verdict=verdict,
                outcome=result.outcome,
                explanation=explanation,
            )


def _warm(script: bytes) -> Job:
    return python_job(WARM, stdin=script, warm=True)


def _verdict(attack: Attack, result: Result, targets: "_Targets") -> tuple[Verdict, str]:
    if result.outcome == "sandbox_error":
        return "broken", result.explanation
    if b"ESCAPED" in result.stdout:
        return "escaped", result.stdout.decode(errors="replace").strip()[-200:]
    if b"Traceback" in result.stderr and b"MemoryError" not in result.stderr:
        return "broken", result.stderr.decode(errors="replace").strip()[-300:]
    if result.outcome not in attack.ends:
        return "escaped", f"ended as {result.outcome}, not as {' or '.join(sorted(attack.ends))}"
    if result.wall_s > attack.wall_s + 30:
        return "escaped", f"took {result.wall_s:.0f} s"
    harm = targets.harm()
    return ("escaped", harm) if harm else ("contained", "")


class _Targets:
    """Targets of attacks: secrets, files, listeners and a process."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "_Targets":
        """Creates the targets."""
        stack = self._stack
        self.folder = stack.enter_context(temporary_folder("targets"))
        self.folder.chmod(0o777)
        self.secret = self.folder / "secret"
        self.secret.write_text(MARK)
        self.secret.chmod(0o666)
        self._inherited = os.open(self.secret, os.O_RDONLY)
        stack.callback(os.close, self._inherited)
        os.set_inheritable(self._inherited, True)
        kept = os.environ.get("POSTTRAIN_SECRET")
        os.environ["POSTTRAIN_SECRET"] = MARK
        stack.callback(_restore, "POSTTRAIN_SECRET", kept)
        self._victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()", MARK],
            stdin=subprocess.PIPE,  # which closes when this process ends, however it does
            stdout=subprocess.DEVNULL,
        )
        stack.callback(self._end_victim)
        self.port = self._listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        self._listen(socket.AF_UNIX, str(self.folder / "socket"))
        (self.folder / "socket").chmod(0o777)
        self.abstract = f"posttrain-{os.getpid()}"
        self._listen(socket.AF_UNIX, f"\0{self.abstract}")
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the targets."""
        self._stack.close()

    def with_constants(self, script: str) -> str:
        """A script with the addresses of all targets as constants: the worst case."""
        constants = {
            "FOLDER": str(self.folder),
            "SECRET": str(self.secret),
            "MARK": MARK,
            "PORT": self.port,
            "ABSTRACT": self.abstract,
            "PARENT": os.getpid(),
            "VICTIM": self._victim.pid,
            "SOURCE": __file__,
            "MEMORY": LIMITS.memory_mb << 20,
            "DISK": LIMITS.disk_mb << 20,
            "PROCESSES": LIMITS.processes,
            "LEFT": f"left-{os.getpid()}",
        }
        return "\n".join(f"{name} = {value!r}" for name, value in constants.items()) + "\n" + script

    def harm(self) -> str:
        """What an attack did to the targets; empty for nothing."""
        if self._victim.poll() is not None:
            return "it ended another process"
        if not self.secret.exists() or self.secret.read_text() != MARK:
            return "it changed a file"
        if extra := {path.name for path in self.folder.iterdir()} - {"secret", "socket"}:
            return f"it made the file {extra.pop()}"
        return _left_behind(f"left-{os.getpid()}".encode())

    def _listen(self, family: int, address: tuple[str, int] | str) -> socket.socket:
        listener = self._stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.bind(address)
        listener.listen()
        return listener

    def _end_victim(self) -> None:
        self._victim.kill()
        self._victim.communicate()


def _left_behind(mark: bytes) -> str:
    """A message about processes with the mark among their arguments after the job ended; empty if none."""
    for _ in range(10):
        found = [process for process in _processes() if mark in process[1]]
        if not found:
            return ""
        time.sleep(0.05)
    for number, _ in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, 9)
    return f"{len(found)} of its processes stayed behind"


def _processes() -> Iterator[tuple[int, bytes]]:
    """Number and command line of every other process."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                yield int(folder.name), (folder / "cmdline").read_bytes()


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
