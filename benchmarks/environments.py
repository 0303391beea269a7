"""What environments cost: many rollouts at once, one that sleeps, a call to a worker, and steps a second of each.

    python -m benchmarks.environments [--episodes 1000] [--sleep 30] [--calls 500] [--seconds 0.3] [--parts PART,...]
        [--output FILE]

Rates are of processor time, which other programs change little, and of the clock where something waits. No model
samples: the turns are the solver's, random legal actions, or the word 1. The parts:

- `archive`, the pages of 144 people, with its solver's turns: one rollout after the other, and all at once; the memory
  of an open rollout is the size of what Python allocated for it.
- eight rollouts in workers, of which one sleeps in a step: when the others are done, and when it is.
- a step in a worker that returns 100 characters at once: what the call takes beyond it, on the clock and of processor
  time in both processes.
- many rollouts in workers at once, a process for each, of which all have begun before the first ends: steps a second on
  the clock, and the memory of a process that it shares with no other.
- a shell in the sandbox: milliseconds of its first command, which opens the box, and of commands after that, beside the
  same ones each in a box of its own; and steps a second of episodes of `shell` with its solver, 1 and 16 at once.
- every environment of this package in one process: steps a second.
"""

import argparse
import asyncio
import inspect
import json
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from posttrain.cli.world import _environment, _Player, _task
from posttrain.components.environments import Environment
from posttrain.components.environments.archive import Archive
from posttrain.components.environments.foreign import Foreign, Visit
from posttrain.components.environments.shell import Shell
from posttrain.components.tasks.pages import Pages
from posttrain.sandbox import Job, Limits, Result, open_pool
from posttrain.types import Task

NEEDED: Final = {"archive": ["pages=pages"], "foreseen": ["environment=workshop"]}
"""Settings without which one cannot be made."""
LEFT_OUT: Final = ("foreign", "shell")
"""Those that run in processes: a call to one is measured apart."""
ROUNDS: Final = 20
"""Of calls to a worker; the fastest counts, since other programs can only slow one down."""


class Echo:
    """An environment that returns at once, or sleeps."""

    def reset(self, seed: int) -> str:
        """Start."""
        return "go"

    def step(self, action: str) -> str:
        """100 characters, after as many seconds as the action has."""
        time.sleep(float(action or 0))
        return "y" * 100


async def played(environment: Environment, task: Task, turns: int, seed: int) -> int:
    """Play a rollout; returns its steps."""
    player, steps = _Player("solver", ("1",), seed), 0
    async with environment.open(task, Random(seed).random) as instance:
        seen = instance.begin()
        for _ in range(turns):
            outcome = await instance.step(await player.turn(instance, seen) or "")
            seen, steps = outcome.observation, steps + 1
            if outcome.done:
                break
            await asyncio.sleep(0)
        return steps


async def archive(episodes: int) -> dict[str, float]:
    """Steps a second of one after the other, and of all at once; bytes of an open rollout."""
    environment, asked = Archive(pages=Pages(size=144, what="titled")), Pages(size=144).load()
    tasks = [asked[i % len(asked)] for i in range(episodes)]
    await played(environment, tasks[0], 5, 0)
    began = time.process_time()
    alone = sum([await played(environment, task, 5, 0) for task in tasks])
    middle = time.process_time()
    together = sum(await asyncio.gather(*(played(environment, task, 5, 0) for task in tasks)))
    end = time.process_time()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    opened = [environment.open(task, Random(0).random) for task in tasks]
    instances = [await one.__aenter__() for one in opened]
    for instance in instances:
        instance.begin()
        await instance.step("<search>who</search>")
    size = (tracemalloc.get_traced_memory()[0] - before) / episodes
    tracemalloc.stop()
    for one in opened:
        await one.__aexit__(None, None, None)
    return {
        "steps_a_second_in_a_row": alone / (middle - began),
        "steps_a_second_at_once": together / (end - middle),
        "bytes_an_episode": size,
    }


async def sleeping(seconds: float) -> dict[str, float]:
    """When seven rollouts of ten steps are done, beside one that sleeps in its first step."""
    environment = Foreign(source=f"{__file__}:Echo", step_seconds=seconds + 60)
    environment.check([])
    began = time.perf_counter()

    async def one(place: int) -> float:
        async with environment.open(_task(place), Random(place).random) as instance:
            instance.begin()
            for step in range(10):
                await instance.step(str(seconds) if place == 0 and step == 0 else "0")
        return time.perf_counter() - began

    slow, *others = await asyncio.gather(*(one(place) for place in range(8)))
    return {"sleeps": seconds, "others_done_after": max(others), "sleeper_done_after": slow}


async def worker_call(calls: int) -> dict[str, float]:
    """Milliseconds of a call beyond the step itself, in the fastest round."""
    environment = Foreign(source=f"{__file__}:Echo")
    environment.check([])
    echo, rounds = Echo(), []
    async with environment.open(_task(0), Random(0).random) as instance:
        instance.begin()
        session = instance._instance._session if isinstance(instance._instance, Visit) else None
        assert session is not None

        def theirs() -> float:
            return int(Path(f"/proc/{session.worker.pid}/schedstat").read_text().split()[0]) / 1e9

        for _ in range(ROUNDS):
            began = (time.perf_counter(), time.process_time(), theirs())
            for _ in range(calls):
                await instance.step("0")
            took = [end - b for end, b in zip((time.perf_counter(), time.process_time(), theirs()), began, strict=True)]
            itself = time.perf_counter()
            for _ in range(calls):
                echo.step("0")
            took[0] -= time.perf_counter() - itself
            rounds.append([part / calls * 1000 for part in took])
    return {
        "ms_on_the_clock": min(clock for clock, _, _ in rounds),
        "ms_of_the_processor": min(ours + workers for _, ours, workers in rounds),
    }


async def workers(episodes: int, steps: int = 10) -> dict[str, float]:
    """Rollouts in processes of their own, all open at once."""
    with TemporaryDirectory() as folder:  # of its own, so that no process imports what this file does
        file = Path(folder) / "echo.py"
        file.write_text(f"import time\n{inspect.getsource(Echo)}", encoding="utf-8")
        return await _open(Foreign(source=f"{file}:Echo", at_once=episodes), episodes, steps)


async def _open(environment: Foreign, episodes: int, steps: int) -> dict[str, float]:
    environment.check([])
    began, opened = time.perf_counter(), list[float]()
    everyone, sizes = asyncio.Event(), list[int]()

    async def one(place: int) -> float:
        async with environment.open(_task(place), Random(place).random) as instance:
            instance.begin()
            opened.append(time.perf_counter() - began)
            if len(opened) == episodes:
                everyone.set()
            await everyone.wait()
            start = time.perf_counter()
            for _ in range(steps):
                await instance.step("0")
            end = time.perf_counter()
            visit = instance._instance
            assert isinstance(visit, Visit) and visit._session is not None
            sizes.append(_private(visit._session.worker.pid))
            return end - start

    took = await asyncio.gather(*(one(place) for place in range(episodes)))
    return {
        "episodes_at_once": len(took),
        "seconds_until_all_are_open": max(opened),
        "steps_a_second": episodes * steps / max(took),
        "kilobytes_a_process": sum(sizes) / len(sizes),
    }


COMMANDS: Final = {"nothing": ":", "one_program": "wc -l < a > out", "two_programs": "sort -n a | tail -n 1 > out"}
"""What is run in a shell."""


async def shell(calls: int) -> dict[str, float]:
    """Milliseconds of commands, the fastest and the median, and steps a second of episodes."""
    pool, limits, file = open_pool(), Limits(cpu_s=2.0, wall_s=20.0, memory_mb=64), "echo 5 > a"
    found, first = dict[str, float](), list[float]()

    async def took(run: Awaitable[Result]) -> float:
        began = time.perf_counter()
        result = await run
        assert result.outcome == "ok", result
        return 1000 * (time.perf_counter() - began)

    for name, command in COMMANDS.items():
        later = list[float]()
        for _ in range(5):
            kept = pool.shell(limits, file, commands=calls)
            first.append(await took(kept.run(":")))
            later += [await took(kept.run(command)) for _ in range(calls // 10)]
            await kept.close()
        job = Job(command=("sh", "-c", f"{file}; {command}"))
        alone = [await took(pool.result(job, limits)) for _ in range(calls // 10)]
        found |= {f"ms_{name}": min(later), f"median_ms_{name}": median(later)}
        found |= {f"ms_{name}_in_its_own_box": min(alone), f"median_ms_{name}_in_its_own_box": median(alone)}
    found |= {"ms_first": min(first), "median_ms_first": median(first)}
    environment = Shell()
    for at_once in (1, 16):
        began, places = time.perf_counter(), range(calls // 5)
        waiting = asyncio.Semaphore(at_once)

        async def one(place: int, waiting: asyncio.Semaphore = waiting) -> int:
            async with waiting:
                return await played(environment, _task(place), 20, place)

        steps = sum(await asyncio.gather(*(one(place) for place in places)))
        found[f"steps_a_second_{at_once}_at_once"] = steps / (time.perf_counter() - began)
    return found


def _private(pid: int) -> int:
    """Kilobytes that a process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


async def steps_a_second(kind: str, seconds: float) -> float:
    """Steps of rollouts of an environment in a second of processor time."""
    environment = _environment(kind, NEEDED.get(kind, ()))
    environment.check([_task(0)])
    await played(environment, _task(0), 20, 0)
    began, steps, seed = time.process_time(), 0, 0
    while time.process_time() - began < seconds:
        seed += 1
        steps += await played(environment, _task(seed), 20, seed)
    return steps / (time.process_time() - began)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--sleep", type=float, default=30.0)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--parts", default="", help="those that are measured; all by default")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args(arguments)
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "archive": lambda: asyncio.run(archive(given.episodes)),
        "sleeping": lambda: asyncio.run(sleeping(given.sleep)),
        "worker_call": lambda: asyncio.run(worker_call(given.calls)),
        "workers": lambda: asyncio.run(workers(given.episodes)),
        "shell": lambda: asyncio.run(shell(given.calls)),
        "steps_a_second": lambda: {
            kind: asyncio.run(steps_a_second(kind, given.seconds))
            for kind in sorted(Environment.kinds())
            if kind not in LEFT_OUT
        },
    }
    chosen = given.parts.split(",") if given.parts else list(parts)
    if unknown := set(chosen) - {*parts}:
        parser.error(f"there is no part {min(unknown)}; one of {', '.join(parts)}")
    found: dict[str, Any] = {name: parts[name]() for name in chosen}
    for part, numbers in found.items():
        print(f"\n| {part} | |\n|---|---|")
        for name, value in numbers.items():
            print(f"| {name} | {value:,.0f} |" if value >= 100 else f"| {name} | {value:.3g} |")
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
