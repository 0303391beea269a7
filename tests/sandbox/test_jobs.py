"""What a job is given, what it gives back, and how every way of ending is named."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.sandbox import Job, Limits, Pool, Result, find_tier, python_job, supervise, tiers
from posttrain.sandbox.cgroups import open_home, sweep
from posttrain.sandbox.launch import Lane, Tier
from posttrain.sandbox.pool import ATTEMPTS, MOST_IDLE, user_of, usual_slots
from tests.sandbox.supervised import supervisor, until

ROOMY = Limits(cpu_s=20.0, wall_s=120.0)


def shell(script: str, **more: object) -> Job:
    return Job(command=("sh", "-c", script), **more)  # type: ignore[arg-type]


def test_input_files_and_output(pool: Pool) -> None:
    job = shell("cat - name; echo said >&2", stdin=b"given ", files={"name": b"kept \xff\0"})
    result = pool.run(job, ROOMY)
    assert (result.outcome, result.stdout, result.stderr) == ("ok", b"given kept \xff\0", b"said\n")
    assert result.exit_code == 0


def test_a_file_can_be_changed_inside_and_is_new_for_the_next_job(pool: Pool) -> None:
    job = shell("cat name; echo changed > name; cat name; ls", files={"name": b"first\n"})
    for _ in range(2):
        assert pool.run(job, ROOMY).stdout == b"first\nchanged\nname\n"


ORDERS = {
    "perl": Job(command=("perl", "-e", "my %seen = map { $_ => 1 } 'a' .. 'zz'; print join ' ', keys %seen")),
    "python": python_job(b"print(*{chr(97 + i % 26) * i for i in range(200)})"),
}


@pytest.mark.parametrize("language", ORDERS)
def test_tables_are_in_the_same_order_in_every_run(pool: Pool, language: str) -> None:
    first, second = (pool.run(ORDERS[language], ROOMY) for _ in range(2))
    assert first.outcome == "ok" and len(first.stdout) > 500, first
    assert first.stdout == second.stdout


def test_an_exit_code_is_a_claim_and_not_an_outcome_of_its_own(pool: Pool) -> None:
    for code in (1, 3, 124, 125, 137, 152):
        result = pool.run(shell(f"exit {code}"), ROOMY)
        assert (result.outcome, result.exit_code) == ("nonzero", code)


def test_a_program_that_is_not_there(pool: Pool) -> None:
    result = pool.run(Job(command=("no-such-program",)), ROOMY)
    assert result.outcome == "nonzero" and b"not found" in result.stderr


@pytest.mark.parametrize(
    ("script", "limits", "outcome"),
    [
        ("while :; do :; done", Limits(cpu_s=0.3, wall_s=120.0), "timeout_cpu"),
        ("sleep 100", Limits(wall_s=0.5), "timeout_wall"),
        ("yes", Limits(cpu_s=20.0, wall_s=120.0, output_kb=10), "output_limit"),
        ("yes >&2", Limits(cpu_s=20.0, wall_s=120.0, output_kb=10), "output_limit"),
        ("head -c 200000000 /dev/zero | tail -n 1", Limits(cpu_s=20.0, wall_s=120.0, memory_mb=64), "memory"),
    ],
)
def test_limits_have_names(pool: Pool, script: str, limits: Limits, outcome: str) -> None:
    result = pool.run(shell(script), limits)
    assert result.outcome == outcome or (outcome == "memory" and pool.tier != "cgroup" and result.outcome == "nonzero")
    assert len(result.stdout) <= limits.output_kb << 10
    if result.outcome != "nonzero":
        assert result.exit_code is None and result.explanation


def test_output_of_exactly_the_limit_is_whole(pool: Pool) -> None:
    limits = Limits(cpu_s=20.0, wall_s=120.0, output_kb=300)
    result = pool.run(shell("head -c 307200 /dev/zero; head -c 307200 /dev/zero >&2"), limits)
    assert (result.outcome, len(result.stdout), len(result.stderr)) == ("ok", 307200, 307200)
    assert pool.run(shell("head -c 307201 /dev/zero"), limits).outcome == "output_limit"


def test_much_input_that_nobody_reads(pool: Pool) -> None:
    assert pool.run(shell("exit 0", stdin=b"x" * 3_000_000), ROOMY).outcome == "ok"
    assert pool.run(shell("wc -c", stdin=b"x" * 3_000_000), ROOMY).stdout.split() == [b"3000000"]


UNCOLLECTED = """
import os, sys
for _ in range(90):
    child = os.fork()
    if child == 0:
        for file in sys.argv[1:]:
            open(file, "w").write("0")
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # until it was in the groups and has ended
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_ended_and_was_not_collected_yet_takes_no_place_of_the_next_job() -> None:
    """The first process of a machine may take seconds to collect orphans, and every job leaves one."""
    if find_tier().tier != "cgroup":
        pytest.skip("there are no control groups here")
    home = open_home()
    group = home.group("lane")
    files = [str(file) for file in group.processes]
    holder = [sys.executable, "-c", UNCOLLECTED, *files]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout and parent.stdout.readline() == b"ready\n"
        assert group.empty()
        started = supervise.start(
            shell("(exit 0); echo forked"),
            Limits(),
            "cgroup",
            Lane(user=12345 if os.getuid() == 0 else None, group=group),
        )
        result = supervise.finish(started, b"")
        parent.communicate()
    group.remove()
    home.remove()
    assert (result.outcome, result.stdout) == ("ok", b"forked\n"), result


def test_python_is_this_python_and_has_no_more_than_its_library(pool: Pool) -> None:
    script = b"import sys\nprint(sys.version)\ntry:\n    import torch\nexcept ImportError:\n    print('none')"
    result = pool.run(python_job(script), ROOMY)
    assert result.stdout.decode() == f"{sys.version}\nnone\n", result


@pytest.mark.slow
def test_one_started_in_advance_gives_the_same_and_carries_nothing_over(pool: Pool) -> None:
    script = b"import os, sys; text = sys.stdin.read(); print(os.listdir('.'), text); open('left', 'w').close()"
    said = [pool.run(python_job(script, stdin=text, warm=True), ROOMY).stdout for text in (b"1", b"2", b"3")]
    assert said == [b"[] 1\n", b"[] 2\n", b"[] 3\n"]
    assert pool.run(python_job(b"print(1)", warm=True), ROOMY).stdout == b"1\n"  # another job than the one that waits
    assert pool.run(python_job(script, stdin=b"4", warm=True), Limits(cpu_s=9.0)).stdout == b"[] 4\n"  # other limits


@pytest.mark.slow
def test_a_failing_sandbox_is_tried_again_and_then_an_error(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [Result(outcome="sandbox_error", explanation="isolation")] * (ATTEMPTS - 1)
    real = supervise.finish
    monkeypatch.setattr(supervise, "finish", lambda s, i: ends.pop() if ends else real(s, i))
    assert pool.run(shell("echo there"), ROOMY).stdout == b"there\n"
    ends += [Result(outcome="sandbox_error", explanation="isolation")] * ATTEMPTS
    assert pool.run(shell("echo there"), ROOMY).outcome == "sandbox_error"

    def refuse(*_: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(supervise, "start", refuse)
    result = pool.run(shell("echo there"), ROOMY)
    assert result.outcome == "sandbox_error" and "no more processes" in result.explanation


@pytest.mark.slow
def test_isolation_that_fails_is_no_verdict(pool: Pool) -> None:
    job = Job(command=("true",), folders={"/shown": "/no/such/folder"})
    if pool.tier in ("cgroup", "namespaces"):
        result = pool.run(job, ROOMY)
        assert result.outcome == "sandbox_error" and "/no/such/folder" in result.explanation


def test_many_at_once_keep_their_own_output() -> None:
    pool = Pool(find_tier().tier, 3)
    try:
        waiting = [pool.submit(shell("cat; sleep 0.05", stdin=str(i).encode()), ROOMY) for i in range(12)]
        assert [w.result().stdout for w in waiting] == [str(i).encode() for i in range(12)]
    finally:
        pool.close()


def test_pools_of_one_process_do_not_share_users_or_groups() -> None:
    first, second = (Pool(find_tier().tier, 1) for _ in range(2))
    try:
        users = [made.run(Job(command=("id", "-u")), ROOMY).stdout for made in (first, second)]
        first.close()
        assert second.run(Job(command=("id", "-u")), ROOMY).stdout == users[1]
        assert users[0] != users[1] or os.getuid() != 0
    finally:
        second.close()


@pytest.mark.slow
def test_nothing_is_left_when_the_supervisor_is_killed() -> None:
    process = supervisor(
        """
        from posttrain.sandbox import Job, Limits, Pool, find_tier
        pool = Pool(find_tier().tier, 1)
        pool.run(Job(command=("true",)), Limits())
        left = Job(command=("sh", "-c", "setsid sleep 4321 & sleep 4321", "left-by-a-killed-one"))
        pool.submit(left, Limits(wall_s=999))
        """
    )
    until(lambda: _running(b"4321"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not _running(b"4321"))


def test_weaker_than_allowed_is_refused_with_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    def only(tier: Tier) -> None:
        finding = tiers.Finding(tier=tier, why_not={"cgroup": "no groups"} if tier != "cgroup" else {})
        monkeypatch.setattr(tiers, "find_tier", lambda: finding)

    monkeypatch.delenv(tiers.VARIABLE, raising=False)
    only("cgroup")
    assert tiers.require("cgroup") == "cgroup"
    only("landlock")
    with pytest.raises(UserError, match=r"(?s)every file is bounded.*no groups.*weakest=landlock"):
        tiers.require("namespaces")
    assert tiers.require("landlock") == "landlock"
    assert tiers.require("none") == "landlock"
    monkeypatch.setenv(tiers.VARIABLE, "landlock")
    assert tiers.require("cgroup") == "landlock"
    monkeypatch.setenv(tiers.VARIABLE, "nothing")
    with pytest.raises(UserError, match="there is no such tier"):
        tiers.require("cgroup")


def _running(word: bytes) -> bool:
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and word in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def test_slots_keep_cores_busy_and_every_lane_is_another_user() -> None:
    cores = len(os.sched_getaffinity(0))
    assert usual_slots() > cores or cores > MOST_IDLE
    lanes = 2 * usual_slots()
    assert len({user_of(lane) for lane in range(lanes)}) == lanes or lanes > 256


def test_many_may_sweep_at_once(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"posttrain-999999999-{number}" / "lane-0").mkdir(parents=True)
    with ThreadPoolExecutor(8) as sweepers:
        for done in [sweepers.submit(sweep, tmp_path) for _ in range(8)]:
            done.result()
    assert not list(tmp_path.iterdir())
