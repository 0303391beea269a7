"""Calls a program's functions in the sandbox; results come back as trees, and are compared outside of it."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from posttrain.grading.programs import encoded
from posttrain.grading.values import ENCODER, parse
from posttrain.sandbox import Limits, Pool, Result, python_job

SHARED: Final = f"import json, os, resource, sys\n{ENCODER}"
WORKER: Final = """
job = json.loads(sys.stdin.buffer.read())
channel = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.stdin = open(os.devnull)
sys.setrecursionlimit(5000)
space = {"__name__": "solution"}
exec(compile(job["code"], "solution.py", "exec"), space)
for number, call in enumerate(job["calls"]):
    try:
        answer = ["value", encode(eval(call, space), [100_000])]
    except Exception as error:
        answer = ["raised", type(error).__name__]
    channel.write(json.dumps([number, answer]) + "\\n")
    channel.flush()
"""
"""Runs in the sandbox, around the program that is tested. Its output is not trusted."""
EACH: Final = """
job = json.loads(sys.stdin.buffer.read())
out = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.stdin = open(os.devnull)
sys.setrecursionlimit(5000)


def ready(text, mode):
    try:
        return compile(text.lstrip(" \\t") if mode == "eval" else text, "solution.py", mode)
    except Exception:
        return text  # where it is run, it fails in the same way


codes = [ready(code, "exec") for code in job["codes"]]
suites = [[ready(call, "eval") for call in calls] for calls in job["suites"]]
for place in range(len(suites) * len(codes)):
    read, write = os.pipe()
    if os.fork() == 0:
        out.close()
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (job["seconds"], job["seconds"] + 1))
        channel = os.fdopen(write, "w")
        space = {"__name__": "solution"}
        exec(codes[place % len(codes)], space)
        for number, call in enumerate(suites[place // len(codes)]):
            try:
                answer = ["value", encode(eval(call, space), [100_000])]
            except Exception as error:
                answer = ["raised", type(error).__name__]
            channel.write(json.dumps([number, answer]) + "\\n")
            channel.flush()
        channel.write("[-1, true]\\n")
        channel.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as own:
        text = own.read().decode("utf-8", "replace")
    os.wait()
    out.write(json.dumps([place, text]) + "\\n")
    out.flush()
"""
"""Several lists of calls for several programs, each list and program in a process of its own."""
Called = tuple[Result, dict[int, Any]]
"""How a program ended, and the outcome of each call by its number."""


async def called_each(
    codes: Sequence[str], suites: Sequence[Sequence[str]], pool: Pool, limits: Limits
) -> list[list[Called]]:
    """What `called` returns for each list of calls and each program, with one start of the sandbox for all.

    A program that did not end, or after which the limits were used up, is run again alone.
    """
    message = {"codes": list(codes), "suites": list(map(list, suites)), "seconds": max(1, math.ceil(limits.cpu_s))}
    job = python_job(encoded(EACH), stdin=json.dumps(message).encode("ascii"), warm=True, shared=SHARED)
    count = len(suites)
    cpu_s, wall_s, output_kb = (count * most for most in (limits.cpu_s, limits.wall_s, limits.output_kb))
    result = await pool.result(job, replace(limits, cpu_s=cpu_s, wall_s=wall_s, output_kb=int(output_kb)))
    texts = outcomes_in(result.stdout)

    async def alone(place: int, code: str, calls: Sequence[str]) -> Called:
        text = texts.get(place)
        outcomes = outcomes_in(text.encode("utf-8", "replace")) if isinstance(text, str) else {}
        whole = outcomes.pop(-1, None) is True
        return (result, outcomes) if whole else await called(code, calls, pool, limits)

    return [
        [await alone(number * len(codes) + place, code, calls) for place, code in enumerate(codes)]
        for number, calls in enumerate(suites)
    ]


async def called(code: str, calls: Sequence[str], pool: Pool, limits: Limits) -> Called:
    """How the program ended, and the outcome of each call by its number: ``["value", tree]`` or ``["raised", name]``.

    Calls after the one at which the program ended have no outcome.
    """
    message = json.dumps({"code": code, "calls": list(calls)})
    job = python_job(encoded(WORKER), stdin=message.encode("ascii"), warm=True, shared=SHARED)
    result = await pool.result(job, limits)
    return result, outcomes_in(result.stdout)


def outcomes_in(output: bytes) -> dict[int, Any]:
    """The outcome of each call by its number; the first one counts."""
    outcomes: dict[int, Any] = {}
    for line in output.split(b"\n"):
        parsed = parse(line)
        if isinstance(parsed, list) and len(parsed) == 2 and type(parsed[0]) is int:
            outcomes.setdefault(parsed[0], parsed[1])
    return outcomes
