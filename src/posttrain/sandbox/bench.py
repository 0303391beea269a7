"""Compares the time of the sandbox with that of a plain subprocess, alternating."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from posttrain.sandbox.job import Job, Limits
from posttrain.sandbox.launch import Tier, python_folder, python_job
from posttrain.sandbox.pool import Pool, usual_slots

TURNS = 3
ECHO = b"import sys; sys.stdout.write(sys.stdin.read())"


def measure(tier: Tier, runs: int) -> list[dict[str, Any]]:
    """Milliseconds of one Python program (minimum and median), and programs per second on all cores."""
    cores, slots = len(os.sched_getaffinity(0)), usual_slots()
    one, all_of_them = Pool(tier, 1), Pool(tier, slots)
    binary, home = python_folder()
    outside = str(home) + binary.removeprefix("/python") if home else binary
    plain_command = [outside, "-I", "-S", "-c", ECHO.decode()]
    cold, warm = python_job(ECHO, stdin=b"x"), python_job(ECHO, stdin=b"x", warm=True)
    shell = Job(command=("sh", "-c", "cat"), stdin=b"x")

    def plain() -> None:
        subprocess.run(plain_command, input=b"x", capture_output=True, check=True)

    def inside(pool: Pool, job: Job) -> Callable[[], None]:
        def run() -> None:
            result = pool.run(job, Limits())
            assert (result.outcome, result.stdout) == ("ok", b"x"), result

        return run

    ways: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "plain subprocess": (plain, plain),
        "sandbox, Python": (inside(one, cold), inside(all_of_them, cold)),
        "sandbox, warm Python": (inside(one, warm), inside(all_of_them, warm)),
        "sandbox, shell": (inside(one, shell), inside(all_of_them, shell)),
    }
    try:
        times = {name: _times(way, runs) for name, (way, _) in ways.items()}
        rates = _rates({name: way for name, (_, way) in ways.items()}, runs, slots)
    finally:
        one.close()
        all_of_them.close()
    base = statistics.median(times["plain subprocess"])
    return [
        {
            "way": name,
            "least_ms": round(1e3 * min(times[name]), 1),
            "median_ms": round(1e3 * statistics.median(times[name]), 1),
            "median_against_plain": round(statistics.median(times[name]) / base, 2),
            "runs_a_second": round(rates[name]),
            "slots": slots,
            "cores": cores,
        }
        for name in ways
    ]


def _times(run: Callable[[], None], runs: int) -> list[float]:
    """Seconds of each run, with pauses in which a program may be started in advance."""
    run()
    times = []
    for _ in range(runs):
        time.sleep(0.05)
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return times


def _rates(ways: dict[str, Callable[[], None]], runs: int, slots: int) -> dict[str, float]:
    """Runs per second of each way, alternating, with one run per slot of a default pool."""
    seconds = dict.fromkeys(ways, 0.0)
    with ThreadPoolExecutor(slots) as threads:
        for turn in range(TURNS + 1):
            for name, run in ways.items():
                begun = time.perf_counter()
                for done in [threads.submit(run) for _ in range(runs)]:
                    done.result()
                seconds[name] += time.perf_counter() - begun if turn else 0.0  # the first turn opens the slots
    return {name: TURNS * runs / taken for name, taken in seconds.items()}
