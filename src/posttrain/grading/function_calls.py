"""Calls a program's functions in the sandbox; results come back as trees, and are compared outside of it."""

import json
from collections.abc import Sequence
from typing import Any, Final

from posttrain.grading.programs import encoded
from posttrain.grading.values import ENCODER, parse
from posttrain.sandbox import Limits, Pool, Result, python_job

WORKER: Final = (
    ENCODER
    + """
import json, os, sys
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
)
"""Runs in the sandbox, around the program that is tested. Its output is not trusted."""


EACH: Final = (
    ENCODER
    + """
import json, os, sys
job = json.loads(sys.stdin.buffer.read())
out = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.stdin = open(os.devnull)
sys.setrecursionlimit(5000)
for place, code in enumerate(job["codes"]):
    read, write = os.pipe()
    if os.fork() == 0:
        out.close()
        os.close(read)
        channel = os.fdopen(write, "w")
        space = {"__name__": "solution"}
        exec(compile(code, "solution.py", "exec"), space)
        for number, call in enumerate(job["calls"]):
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
)
"""The same calls for several programs, each in a process of its own."""


async def called_each(
    codes: Sequence[str], calls: Sequence[str], pool: Pool, limits: Limits
) -> list[tuple[Result, dict[int, Any]]]:
    """What `called` returns for each program, with one start of the sandbox for all.

    A program that did not end, or after which the limits were used up, is run again alone.
    """
    message = json.dumps({"codes": list(codes), "calls": list(calls)})
    job = python_job(encoded(EACH), stdin=message.encode("ascii"), warm=True)
    result = await pool.result(job, limits)
    texts = outcomes_in(result.stdout)
    found: list[tuple[Result, dict[int, Any]]] = []
    for place, code in enumerate(codes):
        text = texts.get(place)
        outcomes = outcomes_in(text.encode("utf-8", "replace")) if isinstance(text, str) else {}
        whole = outcomes.pop(-1, None) is True
        found.append((result, outcomes) if whole else await called(code, calls, pool, limits))
    return found


async def called(code: str, calls: Sequence[str], pool: Pool, limits: Limits) -> tuple[Result, dict[int, Any]]:
    """How the program ended, and the outcome of each call by its number: ``["value", tree]`` or ``["raised", name]``.

    Calls after the one at which the program ended have no outcome.
    """
    message = json.dumps({"code": code, "calls": list(calls)})
    job = python_job(encoded(WORKER), stdin=message.encode("ascii"), warm=True)
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
