"""Shells that stay in their box: what lasts, what each command may use, and what none of them can leave behind."""

import asyncio
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.sandbox import Job, Limits, Pool, Result, Shell, attacks, find_tier, shells
from posttrain.sandbox.processes import descendants
from posttrain.sandbox.shells import Box
from tests.sandbox.supervised import supervisor, until

ROOMY = Limits(cpu_s=20.0, wall_s=120.0, memory_mb=64)


@pytest.fixture(scope="module")
def shelled() -> Iterator[Pool]:
    if find_tier().tier == "none":
        pytest.skip(f"no sandbox here: {find_tier().why_not}")
    made = Pool(find_tier().tier, 2)
    yield made
    made.close()


def ran(shell: Shell, *commands: str) -> list[Result]:
    """The results of commands, after which the shell stays open."""

    async def run() -> list[Result]:
        return [await shell.run(command) for command in commands]

    return asyncio.run(run())


def texts(shell: Shell, *commands: str) -> list[str]:
    """What commands print, after which the box is closed."""
    found = [result.stdout.decode() for result in ran(shell, *commands)]
    asyncio.run(shell.close())
    return found


def box_of(shell: Shell) -> Box:
    return shell._boxes._idle[shell]


def processes(shell: Shell) -> set[int]:
    return box_of(shell)._alive()


def state(process: int) -> str:
    """The letter that the kernel has for it: T is stopped."""
    return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0]


def test_files_variables_functions_and_the_folder_last(shelled: Pool) -> None:
    shell = shelled.shell(ROOMY, "echo 3 > given")
    found = texts(
        shell, 'x=$(cat given); f() { echo "f$1"; }', "mkdir d; cd d", "f $x; pwd; ls ..", "echo 'a\nb'\necho c"
    )
    assert found == ["", "", f"f3\n{found[2].split()[1]}\nd\ngiven\n", "a\nb\nc\n"] and found[2].split()[1].endswith(
        "/d"
    )


def test_errors_are_in_the_output_and_codes_in_the_result(shelled: Pool) -> None:
    shell = shelled.shell(ROOMY)
    results = ran(shell, "echo one; ls nothing; echo two", "false", "(exit 7)", "true")
    assert [result.exit_code for result in results] == [0, 1, 7, 0]
    assert [result.outcome for result in results] == ["ok", "nonzero", "nonzero", "ok"]
    lines = results[0].stdout.decode().splitlines()
    assert lines[0] == "one" and "nothing" in lines[1] and lines[2] == "two"
    asyncio.run(shell.close())


def test_a_shell_is_what_a_job_has(shelled: Pool) -> None:
    """Variables, signals and limits of a shell that is forked are those of one that is started."""
    shown = "env | sort; grep Sig.*: /proc/self/status; grep Cap[EP] /proc/self/status; ulimit -c; ulimit -n; ulimit -f"
    other = shelled.run(Job(command=("sh", "-c", shown)), ROOMY)
    assert other.outcome == "ok"
    first, second = texts(shelled.shell(ROOMY), shown), other.stdout.decode()
    assert first[0].splitlines() == [line for line in second.splitlines() if not line.startswith(("OLDPWD", "SHLVL"))]
    assert texts(shelled.shell(ROOMY), "yes | head -n 1") == ["y\n"], "a reader that goes ends the writer"


ENDED = {
    "nonzero": ("exit 3", "kill -9 $$", "if", "exec false"),
    "ok": ("exit", "exec true"),
    "timeout_cpu": ("while :; do :; done",),
    "timeout_wall": ("sleep 60", "kill -STOP $$", "set -n"),
    "memory": ("head -c 500000000 /dev/zero > big", "tail /dev/zero"),
    "output_limit": ("yes", "head -c 3000000 /dev/zero"),
}


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ENDED)
def test_what_ends_the_shell_or_exceeds_a_limit_ends_the_box_alone(shelled: Pool, outcome: str) -> None:
    limits = Limits(cpu_s=0.3, wall_s=1.5, memory_mb=64)
    for command in ENDED[outcome]:
        shell, beside = shelled.shell(limits), shelled.shell(limits)
        assert ran(beside, "echo kept > file")[0].outcome == "ok"
        before = processes(beside)
        if outcome == "timeout_cpu":
            limits = Limits(cpu_s=0.3, wall_s=60.0)
            shell = shelled.shell(limits)
        first, second = ran(shell, command, "echo on")
        assert (first.outcome, second.outcome, second.stdout) == (outcome, outcome, b""), command
        assert shell.over is not None and shell not in shell._boxes._idle
        assert processes(beside) == before and texts(beside, "cat file") == ["kept\n"]


def test_limits_are_those_of_each_command(shelled: Pool) -> None:
    """Six commands that use .1 s are within a limit of .3 s each; one of them with more is not."""
    shell = shelled.shell(Limits(cpu_s=0.3, wall_s=60.0), commands=100)
    busy = "i=0; while [ $i -lt {n} ]; do i=$((i+1)); done"
    count = 50_000
    results = ran(shell, *[busy.format(n=count)] * 8, busy.format(n=100_000_000))
    assert [result.outcome for result in results] == ["ok"] * 8 + ["timeout_cpu"]


@pytest.mark.parametrize(
    "command",
    [
        "sleep 60 & echo on",
        "f() { f | f & }; f; echo on",
        "(setsid sleep 60 &); echo on",
        "trap '' TERM HUP; sleep 60 & echo on",
    ],
)
def test_what_a_command_leaves_running_is_ended_with_it(shelled: Pool, command: str) -> None:
    shell = shelled.shell(ROOMY)
    ran(shell, ":")
    alone = processes(shell)
    assert ran(shell, command)[0].stdout.startswith(b"on\n")
    assert processes(shell) == alone and len(alone) <= 4
    assert texts(shell, "echo next") == ["next\n"]


def test_the_shell_is_stopped_between_commands(shelled: Pool) -> None:
    shell = shelled.shell(ROOMY)
    for command in (":", "sleep 60 &", "ls /"):
        assert ran(shell, command)[0].outcome == "ok"
        until(lambda: "T" in [state(process) for process in processes(shell)])
    asyncio.run(shell.close())


def test_a_shell_that_prints_what_it_does_stays_in_step(shelled: Pool) -> None:
    shell = shelled.shell(ROOMY)
    commands = "set -x", "echo one; false", "PS4='9 9\n'", "echo two", "set +x", "echo three"
    results = ran(shell, *commands)
    assert [result.exit_code for result in results] == [0, 1, 0, 0, 0, 0]
    assert results[1].stdout == b"+ echo one\none\n+ false\n" and results[-1].stdout == b"three\n"
    asyncio.run(shell.close())


def test_shells_see_nothing_of_each_other(shelled: Pool) -> None:
    one, two = shelled.shell(ROOMY), shelled.shell(ROOMY)
    ran(one, "echo 1 > /box/mine; echo 1 > /dev/shm/mine; x=mine; sleep 61 &")
    found = texts(two, "ls /box /dev/shm; echo $x; cat /proc/*/cmdline | tr '\\0' ' '")
    assert found[0].startswith("/box:\n\n/dev/shm:\n\n") and "sleep 61" not in found[0]
    asyncio.run(one.close())
    asyncio.run(two.close())


def test_a_box_that_was_closed_for_another_is_made_again(shelled: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shells, "MOST_OPEN", 1)
    commands = ["x=1; echo a >> file", "x=$((x+1)); echo b >> file", "echo $x; cat file"]
    own = Pool(shelled.tier, 1)
    several = [own.shell(ROOMY, "echo 0 > file") for _ in range(3)]
    results = [[ran(shell, command)[0].stdout for shell in several] for command in commands]
    assert results[-1] == [b"2\n0\na\nb\n"] * 3
    assert sum(shell in shell._boxes._idle for shell in several) == 1
    own.close()


def test_a_sandbox_that_fails_is_made_again(shelled: Pool) -> None:
    """The processes of the isolation are killed from outside, as the machine could do."""
    shell = shelled.shell(ROOMY, "echo 0 > file")
    ran(shell, "echo 1 >> file")
    servers = shell._boxes._servers.kept
    victims = [server._process.pid for server in servers] or [box_of(shell).started.child.pid]  # type: ignore[attr-defined]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    until(lambda: len(processes(shell)) == 0)
    assert texts(shell, "cat file") == ["0\n1\n"]


def test_a_pool_that_closes_leaves_no_process(shelled: Pool) -> None:
    own = Pool(shelled.tier, 1)
    shell = own.shell(ROOMY)
    ran(shell, "sleep 60 & :")
    alive = processes(shell)
    group = box_of(shell).started.lane.group
    assert alive
    own.close()
    until(lambda: not any(Path("/proc", str(process)).exists() for process in alive))
    assert group is None or not any(folder.exists() for folder in group.folders.values())


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_none_of_its_shells() -> None:
    if find_tier().tier == "none":
        pytest.skip(f"no sandbox here: {find_tier().why_not}")
    process = supervisor(
        """
        import asyncio
        from posttrain.sandbox import Limits, Pool, find_tier
        pool = Pool(find_tier().tier, 1)
        shell = pool.shell(Limits(cpu_s=20.0, wall_s=120.0))
        assert asyncio.run(shell.run("echo on")).stdout == b"on\\n"
        """
    )
    below = {*descendants(process.pid)} - {process.pid}
    assert below
    process.kill()
    process.wait()
    until(lambda: not any(Path("/proc", str(one)).exists() for one in below))


class InShells:
    """Runs attacks as commands of shells that stay open, so that what they leave behind would be found."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.shells: list[Shell] = []

    def run(self, job: Job, limits: Limits) -> Result:
        if job.command == ("cat",):
            return self._pool.run(job, limits)
        self.shells.append(self._pool.shell(limits))
        return ran(self.shells[-1], f"LD_LIBRARY_PATH=/python/lib {shlex.join(job.command)}")[0]


@pytest.mark.slow
def test_every_attack_is_contained_in_a_command(shelled: Pool) -> None:
    if find_tier().tier != "cgroup" or find_tier().why_no_forks:
        pytest.skip("needs the tier 'cgroup' as root, whose shells have a Python")
    inside = InShells(shelled)
    findings = list(attacks.run(inside, attacks.all_attacks()))  # type: ignore[arg-type]
    for shell in inside.shells:
        asyncio.run(shell.close())
    assert len(findings) > 50 and [finding for finding in findings if finding.verdict != "contained"] == []
