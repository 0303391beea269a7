import asyncio
import gc
import math
import os
import signal
import subprocess
import sys
import time
import weakref
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.grading.workers import Limits, Outcome, Runner, _processes
from posttrain.grading.workers.wire import HEADER, frame, parse
from posttrain.sandbox.cgroups import open_home

GRADER = "tests.grading.workers.graders:make"


def runner(cpu: float = 0.3, wall: float = 60.0, **more: Any) -> Runner:
    limits = Limits(cpu_seconds=cpu, wall_seconds=wall, memory_mib=more.pop("memory", 1024))
    return Runner(GRADER, limits=limits, **{"workers": 2, **more})


class TestOutcomes:
    @pytest.mark.parametrize(
        ("call", "how", "why"),
        [
            (["spin"], "timeout_cpu", "took longer than 0.3 s of processor time"),
            (["in one C call"], "timeout_cpu", "0.3 s of processor time"),
            (["memory"], "memory", "more memory than the 1024 MiB"),
            (["crash", signal.SIGSEGV], "crashed", "SIGSEGV"),
            (["crash", signal.SIGABRT], "crashed", "SIGABRT"),
            (["leave"], "crashed", "exit status 3"),
            (["exit"], "raised", "SystemExit: 3"),
            (["raise", "gone"], "raised", "KeyError: 'gone'"),
            (["unspeakable"], "raised", "builtins.object cannot be sent"),
            (["crash", signal.SIGKILL], "infra_error", "killed from outside"),
        ],
    )
    def test_a_failure_is_reported_and_the_next_call_is_fine(self, call: list[Any], how: str, why: str) -> None:
        grader = runner()
        bad, good = grader.run_now(call)[0], grader.run_now(7)[0]
        assert (bad.how, bad.value) == (how, None)
        assert why in bad.explanation
        assert (good.how, good.value) == ("ok", 7)
        assert bad.attempts == (3 if how == "infra_error" else 1)

    def test_waiting_is_limited_on_the_clock(self) -> None:
        (outcome,) = runner(cpu=60, wall=0.2).run_now(["sleep"])
        assert outcome.how == "timeout_wall" and "0.2 s on the clock" in outcome.explanation

    def test_what_was_killed_from_outside_is_tried_again(self, tmp_path: Path) -> None:
        (outcome,) = runner().run_now(["once_killed", str(tmp_path / "mark")])
        assert (outcome.how, outcome.value, outcome.attempts) == ("ok", "answered", 2)

    def test_a_grader_that_does_not_load(self) -> None:
        (outcome,) = Runner("tests.grading.workers.graders:not_loading").run_now(1)
        assert outcome.how == "unstarted" and "ImportError: no such library" in outcome.explanation
        (outcome,) = Runner("tests.grading.workers.graders:no_such").run_now(1)
        assert outcome.how == "unstarted" and "no_such" in outcome.explanation

    def test_a_library_that_is_not_there(self) -> None:
        (outcome,) = Runner(GRADER, preload=("no_such_library",)).run_now(1)
        assert outcome.how == "unstarted" and "cannot import no_such_library" in outcome.explanation

    def test_an_argument_that_cannot_be_sent(self) -> None:
        (outcome,) = runner().run_now(object())
        assert outcome.how == "infra_error" and "cannot be sent" in outcome.explanation


def test_a_runner_that_is_collected_in_the_middle_of_an_order_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers are ended after the order, in the thread that gives it, where the collection ran."""
    given_up = [runner(workers=1)]
    (pid,) = (outcome.value for outcome in given_up[0].run_now(["pid"]))

    def collecting(message: Any) -> bytes:
        given_up.clear()
        gc.collect()
        return frame(message)

    monkeypatch.setattr(_processes, "frame", collecting)
    assert runner(workers=1).run_now(7)[0].value == 7
    assert not given_up and not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_control_group_of_a_worker_is_left_behind() -> None:
    """It is killed, and removes none of its own."""
    try:
        home = open_home()
    except OSError as error:
        pytest.skip(f"there are no control groups here: {error}")
    home.remove()
    own = runner(workers=1, cpu=60.0, preload=("shelve",))
    (outcome,) = own.run_now(["open groups"])
    folders = [Path(folder) for folder in outcome.value]
    assert folders and all(folder.is_dir() for folder in folders)
    del own
    _processes._zygotes.pop(("shelve",)).close()
    assert not [folder for lane in folders for folder in (lane, lane.parent) if folder.exists()]


class TestIsolation:
    @pytest.mark.slow
    def test_order_is_kept_and_others_are_unharmed(self) -> None:
        calls: list[Any] = [["spin"] if n in (3, 17) else ["leave"] if n == 8 else n for n in range(24)]
        outcomes = runner().run_now(*calls)
        assert [o.value for o in outcomes] == [n if isinstance(n, int) else None for n in calls]
        assert [o.how for o in outcomes if o.how != "ok"] == ["timeout_cpu", "crashed", "timeout_cpu"]

    def test_a_worker_is_warm_until_it_dies(self) -> None:
        grader = runner(workers=1)
        assert [o.value for o in grader.run_now(["count"], ["count"], ["spin"], ["count"])] == [1, 2, None, 1]

    def test_what_a_grader_started_dies_with_it(self, tmp_path: Path) -> None:
        (outcome,) = runner().run_now(["child_and_spin", str(tmp_path / "pid")])
        assert outcome.how == "timeout_cpu"
        pid = int((tmp_path / "pid").read_text())
        with pytest.raises(ProcessLookupError):
            for _ in range(10_000_000):  # gone or a zombie that init has still to collect
                os.kill(pid, 0)
                if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                    raise ProcessLookupError

    def test_workers_know_nothing_of_the_run(self) -> None:
        import torch  # noqa: F401  what a training process has loaded

        grader = runner()
        modules, pid, parent = (o.value for o in grader.run_now(["modules"], ["pid"], ["parent"]))
        assert "torch" not in modules and "pytest" not in modules
        assert os.getpid() not in (pid, parent)

    def test_a_lost_zygote_is_replaced(self) -> None:
        grader = runner(workers=1)
        (parent,) = grader.run_now(["parent"])
        os.kill(parent.value, signal.SIGKILL)
        for _ in range(200):  # the worker that is still there may answer once more before it is ended too
            (after,) = grader.run_now(["parent"])
            assert after.how == "ok"
            if after.value != parent.value:
                break
            time.sleep(0.02)
        assert after.value != parent.value

    def test_cancelling_ends_the_worker_and_not_the_runner(self) -> None:
        grader = runner(cpu=60, workers=1)

        async def hurried() -> None:
            await asyncio.wait_for(grader.call(["sleep"]), 0.2)

        with pytest.raises(TimeoutError):
            asyncio.run(hurried())
        assert grader.run_now(5)[0].value == 5

    def test_within_a_running_loop(self) -> None:
        grader = runner()

        async def main() -> Any:
            return grader.run_now(5)[0].value, (await grader.call(6)).value

        assert asyncio.run(main()) == (5, 6)

    def test_nothing_is_left_when_the_run_is_killed(self, tmp_path: Path) -> None:
        code = (
            "import asyncio, os, signal\nfrom posttrain.grading.workers import Limits, Runner\n"
            f"r = Runner({GRADER!r}, limits=Limits(cpu_seconds=100))\n"
            "pids = [o.value for o in r.run_now(['pid'], ['parent'])]\n"
            "print(*pids, flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL  # and the pipe was closed by all who had it, or run() would hang
        assert len(done.stdout.split()) == 2

    def test_a_zygote_that_is_busy_when_the_run_is_killed_ends_too(self, tmp_path: Path) -> None:
        (tmp_path / "deadly.py").write_text(
            "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(3600)\n"
        )
        code = (
            f"from posttrain.grading.workers import Runner\nRunner({GRADER!r}, preload=['deadly']).run_now(['pid'])\n"
        )
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environ, timeout=60)
        assert done.returncode == -signal.SIGKILL  # and its output was closed by all who had it

    @pytest.mark.slow
    def test_nothing_is_kept_of_a_step(self) -> None:
        grader = runner(workers=1)
        loops = []

        async def step() -> list[Outcome]:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            return await grader.run([1, 2, 3])

        for _ in range(3):
            assert [outcome.value for outcome in asyncio.run(step())] == [1, 2, 3]
        gc.collect()
        assert [loop() for loop in loops] == [None] * 3 and not grader._slots


class Level(IntEnum):
    HIGH = 3


class TestWire:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            -3,
            10**400,
            0.1,
            math.inf,
            "a\ud800b\0",
            [1, [2]],
            {"a": {"b": 1}},
            {1: "a", (2, 3): None},
            (1, "a", (2,)),
            {1, 2},
            b"\x00\xff",
            Decimal("1.50"),
            Fraction(1, 3),
            date(2024, 2, 29),
            datetime(2024, 2, 29, 12, 30),
            timedelta(days=1, microseconds=3),
            {"\0type": "exec", "content": "boom"},
            Level.HIGH,
        ],
    )
    def test_round_trip(self, value: Any) -> None:
        message = frame(value)
        assert HEADER.unpack(message[: HEADER.size])[0] == len(message) - HEADER.size
        back = parse(message[HEADER.size :])
        assert back == value
        assert type(back) is type(value) or isinstance(value, Level)

    @pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3), np.float32(1.5), np.array([], np.int64)])
    def test_arrays(self, array: Any) -> None:
        back = parse(frame(array)[HEADER.size :])
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype and type(back) is type(array)

    def test_objects_are_neither_sent_nor_made(self) -> None:
        with pytest.raises(TypeError, match="cannot be sent"):
            frame({"a": [object()]})
        with pytest.raises((KeyError, ValueError)):
            parse(b'{"\\u0000type": "os.system", "content": "true"}')
        with pytest.raises(ValueError, match="is not sent"):
            parse(b'{"\\u0000type": "array", "content": ["|O", [1], "AAAAAAAAAAA=", false]}')


class TestSessions:
    def test_a_worker_that_ends_between_calls_is_noticed(self) -> None:
        """Its end wakes the event loop once, and the next call has it as its outcome."""

        async def play() -> tuple[Outcome, Outcome, Outcome]:
            async with runner().session() as session:
                first = await session.call(7)
                os.kill(session.worker.pid, signal.SIGKILL)
                await asyncio.sleep(0.05)
                began = time.process_time()
                await asyncio.sleep(0.2)
                assert time.process_time() - began < 0.1
                return first, await session.call(7), await session.call(7)

        first, second, third = asyncio.run(play())
        assert (first.how, first.value) == ("ok", 7)
        assert second.how == third.how == "infra_error"

    def test_another_loop_goes_on_with_the_worker(self) -> None:
        grader = runner()

        async def play() -> tuple[int, list[Any]]:
            async with grader.session() as session:
                return session.worker.pid, [(await session.call(value)).value for value in (1, "a" * 300_000)]

        found = [asyncio.run(play()) for _ in range(3)]
        assert len({pid for pid, _ in found}) == 1
        assert all(values == [1, "a" * 300_000] for _, values in found)
