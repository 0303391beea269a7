"""Whatever a model writes is wrong or an error, within a second of processor time and 512 MB, in another process."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import TypeAdapter

from posttrain.components.rewards import Reward
from posttrain.sandbox import missing_programs
from posttrain.types import Task
from tests.components.rewards.judging import attempt, score_all
from tests.components.rewards.programs import spent
from tests.conformance._members import members
from tests.conformance._reward_cases import CASES, IN_A_SANDBOX

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
KERNEL = CASES["kernel"].gold
KERNELS = {
    "for ever": KERNEL.replace("    out[i]", "    while True:\n        i = i\n    out[i]"),
    "memory": "x = bytearray(1 << 30)\n" + KERNEL,
    "forks": "import os\nwhile True: os.fork()\n",
    "large": KERNEL.replace("42", "9 ** 9 ** 9"),
}
QUERIES = {
    "for ever": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
    "memory": "WITH RECURSIVE n(x) AS (SELECT zeroblob(100000000) UNION ALL SELECT x FROM n) SELECT x FROM n",
    "products": f"SELECT count(*) FROM {', '.join(f'(SELECT 1 UNION SELECT 2) t{n}' for n in range(40))}",
}
CIRCUITS = {
    "for ever": CASES["verilog"].gold.replace("endmodule", "initial forever #0; endmodule"),
    "large": CASES["verilog"].gold.replace(
        "endmodule",
        "genvar g; generate for (g = 0; g < 9999999; g = g + 1) begin : b wire w; end endgenerate endmodule",
    ),
    "itself": CASES["verilog"].gold.replace("endmodule", "add inner(a, y); endmodule"),
}
LOOP = "def f(a):\n    n = 0\n    while n < a:\n        n += 1\n    if n == 41:\n        return 1"
FORMULAS = {
    name: rf"\boxed{{{text}}}"
    for name, text in {
        "tower": "9^{9^{9^9}}",
        "factorials": "9!!!!",
        "sums": r"\sum_{i=1}^{10^9} \sum_{j=1}^{10^9} \sin(ij)",
        "expansion": "(x+y+z)^{900}",
        "roots": r"\sqrt{" * 19 + "2" + "}" * 19,
    }.items()
}
"""Answers that mathematics libraries compute."""
GIVEN: Mapping[str, tuple[dict[str, Any], Task | None, Mapping[str, str]]] = {
    "math_verify": ({}, None, FORMULAS),
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
    "kernel": ({}, None, KERNELS),
    "python_tests": ({}, None, RUN),
    "sql": ({}, None, QUERIES),
    "verilog": ({}, None, CIRCUITS),
    "branch_distance": (
        {},
        Task(key="t", prompt="t", fields={"source": LOOP, "line": 6}),
        {"far": "10000000000000"},
    ),
}


WIDER = {
    "counted_work": "Valgrind runs a program 20 to 50 times slower; it counts instructions",
    "function": "a function of the user's may load a model; its limits are the user's to set",
    "reasoning_gym": "some verifiers of the library solve the task first, whatever the answer is",
    "io_tests": "a limit of one run of a program, and tasks of contests are given several seconds",
    "openai_grader": "limits of a program that the user gives",
}
"""Rewards whose limits are wider by default, and why; those of the models' programs are killed at theirs."""


def test_limits_are_a_second_and_512_mb_unless_wider_is_needed() -> None:
    found = {}
    for own in (parameter.values[0] for parameter in members(Reward)):
        fields = own.__dataclass_fields__
        limits = getattr(fields.get("limits"), "default", None)
        seconds = limits.cpu_s if limits else getattr(fields.get("time_limit"), "default", None)
        memory = limits.memory_mb if limits else getattr(fields.get("memory_mib"), "default", MEMORY_MIB)
        if isinstance(seconds, float):
            found[own.kind] = seconds <= CPU_S and memory <= MEMORY_MIB
    assert {kind for kind, within in found.items() if not within} == WIDER.keys()
    assert {kind for kind, within in found.items() if within} == GIVEN.keys(), "each of them is tried below"


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
