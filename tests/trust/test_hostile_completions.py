"""Whatever a model writes is wrong or an error, within a second of processor time and 512 MB, in another process."""

import os
import resource
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import TypeAdapter

from posttrain.components.rewards import Reward
from posttrain.sandbox import missing_programs
from posttrain.sandbox.processes import TICKS, descendants
from posttrain.types import Task
from tests.components.rewards.judging import attempt, score_all
from tests.conformance.test_rewards import CASES, IN_A_SANDBOX

CPU_S, MEMORY_MIB = 1.0, 512
TEXTS = {
    "nested": "(" * 50_000 + ")" * 50_000,
    "indented": "\n".join(" " * n + "if 1:" for n in range(400)) + "\n" + " " * 400 + "pass",
    "signs": "x = " + "-" * 100_000 + "1",
    "digits": "x = " + "9" * 100_000,
    "powers": "x = 9 ** 9 ** 9 ** 9",
    "folded": "x = " + "(" * 50 + "'a' * 4000" + ") * 4000" * 50,
    "null": "a\0b" * 1000,
    "halves": "\ud800" * 1000,
    "dots": "a" + ".a" * 100_000,
    "strings": "f'" + "{f'" * 200,
    "lines": "x = 1\n" * 100_000,
    "edits": "<think>-</think><solution>\n"
    + "```\n### a\n<<<<<<< SEARCH\n4\n=======\n5\n>>>>>>> REPLACE\n```\n" * 3000,
    "tests": "\n".join(f"assert f({n}) == {n}" for n in range(5000)),
    "many": "9" * 4000 + " " + "1 " * 5000,
}
RUN = {
    "for ever": "def f(a):\n while True: pass\ndef g(a): return a",
    "memory": "def f(a):\n return len('a' * 10 ** 10)\ndef g(a): return a",
    "lists": "def f(a):\n x = [0]\n while True: x += x\ndef g(a): return a",
    "deep": "def f(a):\n return f(a)\ndef g(a): return a",
    "exit": "import os\ndef f(a):\n os._exit(0)\ndef g(a): return a",
    "forks": "import os\ndef f(a):\n while True: os.fork()\ndef g(a): return a",
}
"""Texts that are programs, where texts are run."""
LOOP = "def f(a):\n    n = 0\n    while n < a:\n        n += 1\n    if n == 41:\n        return 1"
GIVEN: Mapping[str, tuple[dict[str, Any], Task | None, Mapping[str, str]]] = {
    "patch_similarity": ({}, None, {}),
    "uses": ({}, None, {}),
    "refactored": ({"execution": True}, None, RUN),
    "suite": (
        {},
        Task(
            key="t",
            prompt="t",
            fields={
                "correct": ["def f(x):\n while x > 9: x -= 1\n return x", "def f(x):\n return min(x, 9)"],
                "wrong": ["def f(x): return 0"],
            },
        ),
        {"far": "assert f(10000000000000) == 9"},
    ),
    "branch_distance": (
        {},
        Task(key="t", prompt="t", fields={"source": LOOP, "line": 6}),
        {"far": "10000000000000"},
    ),
}


def spent() -> float:
    """Seconds of processor time of all processes that this one has started, and of theirs."""
    total = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    for process in {*descendants(os.getpid())} - {os.getpid()}:
        try:
            with open(f"/proc/{process}/stat") as file:
                total += sum(map(int, file.read().rpartition(")")[2].split()[11:15])) / TICKS
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total


@pytest.mark.slow
@pytest.mark.parametrize("kind", GIVEN)
def test_hostile_completions_are_wrong_within_a_second(kind: str) -> None:
    if missing := missing_programs(IN_A_SANDBOX.get(kind, ("bwrap",))):
        pytest.skip(f"needs {' and '.join(missing)}")
    settings, task, more = GIVEN[kind]
    case = CASES[kind]
    reward: Any = TypeAdapter(Reward).validate_python({"kind": kind, **case.settings, **settings})
    assert getattr(reward, "time_limit", CPU_S) <= CPU_S and getattr(reward, "memory_mib", MEMORY_MIB) <= MEMORY_MIB
    limits = getattr(reward, "limits", None)
    assert limits is None or (limits.cpu_s <= CPU_S and limits.memory_mb <= MEMORY_MIB)
    score_all(reward, attempt(case.gold, case.task))  # its processes are started
    for name, text in {**TEXTS, **more}.items():
        before = spent()
        [score] = score_all(reward, attempt(text, task or case.task))
        assert score.status in ("wrong", "error") and not score.value > 2.0, (name, score)
        programs = len((task or case.task).fields.get("correct", "")) + 1
        assert spent() - before < programs * CPU_S + 1.0, name
    assert score_all(reward, attempt(case.gold, case.task))[0].status == "ok", "it goes on"
