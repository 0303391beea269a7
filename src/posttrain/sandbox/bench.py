"""How fast the sandbox is, beside a plain subprocess, in turns: on a busy machine only the ratios mean something."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from posttrain.sandbox.job import Job, Limits
from posttrain.sandbox.launch import Tier, python_folder, python_job
from posttrain.sandbox.pool import Pool

ECHO = b"import sys; sys.stdout.write(sys.stdin.read())"


def measure(tier: Tier, runs: int) -> list[dict[str, Any]]:
    """Milliseconds of one Python program (the least, and the median), and programs a second on all cores."""
    cores = len(os.sched_getaffinity(0))
    one, all_of_them = Pool(tier, 1), Pool(tier, cores)
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
        "sandbox, Python started in advance": (inside(one, warm), inside(all_of_them, warm)),
        "sandbox, shell": (inside(one, shell), inside(all_of_them, shell)),
    }
    try:
        times = {name: _times(way, runs) for name, (way, _) in ways.items()}
        rates = {name: _rate(way, runs, cores) for name, (_, way) in ways.items()}
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
            "cores": cores,
        }
        for name in ways
    ]


def _times(run: Callable[[], None], runs: int) -> list[float]:
    """Seconds of each run; between two runs there is a pause, in which a program may be started in advance."""
    run()
    times = []
    for _ in range(runs):
        time.sleep(0.05)
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return times


def _rate(run: Callable[[], None], runs: int, cores: int) -> float:
    """Runs a second, as many at a time as there are cores."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(cores) as threads:
        for done in [threads.submit(run) for _ in range(runs)]:
            done.result()
    return runs / (time.perf_counter() - begun)
