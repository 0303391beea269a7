"""Whether a long run grows: steps of rewards that run in workers and sandboxes, and what the process holds after each.

    python -m benchmarks.endurance                    ten thousand steps
    python -m benchmarks.endurance --write docs/measured/trust/endurance.json

A step scores a group of rollouts with each reward at once, in an event loop of its own, as a step of training does. A
table shows what was held in the first, the fifth and the last tenth, the median of up to ten readings each: resident
memory, descriptors, threads, processes, temporary files and event loops. What is held or missing for a moment, such as
a worker that is replaced, does not move a median; what leaks does. Exit code 1 where any of it grew after the first
tenth by over a twentieth, in less than a thousand steps by a share of that, and by more than comes and goes.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median_low

import numpy as np

from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.branch_distance import BranchDistance
from posttrain.components.rewards.counted_work import CountedWork
from posttrain.components.rewards.function import Function
from posttrain.components.rewards.io_tests import IOTests
from posttrain.components.rewards.kernel import Kernel
from posttrain.components.rewards.math_verify import MathVerify
from posttrain.components.rewards.openai_grader import OpenAIGrader
from posttrain.components.rewards.patch_similarity import PatchSimilarity
from posttrain.components.rewards.python_tests import PythonTests
from posttrain.components.rewards.reasoning_gym import ReasoningGym
from posttrain.components.rewards.refactored import Refactored
from posttrain.components.rewards.sql import SQL
from posttrain.components.rewards.suite import Suite
from posttrain.components.rewards.uses import Uses
from posttrain.components.rewards.verilog import Verilog
from posttrain.engines import wait_for
from posttrain.errors import PosttrainError
from posttrain.sandbox import find_tier
from posttrain.sandbox.processes import descendants
from posttrain.types import Group, Segment, Task, Trajectory

SANDBOXED_EVERY = 20
"""Steps between two with the rewards that start a sandboxed program, which take far longer than the others."""
COUNTED_EVERY = 5
"""Of these steps, one in five has `counted_work`, which takes longer than all of them: a program under Valgrind."""
FILLING = 50
"""The first steps have all rewards: every slot of the pools starts its interpreters then, before the first reading."""
READ_EVERY = 8
"""Steps between two readings at least: a reading collects garbage, which takes as long as a step."""
COME_AND_GO = {"processes": 4, "descriptors": 8}
"""Of two sandboxes that are started in advance, or not yet: two processes and four descriptors each."""
SQUARE = Task(key="square", prompt="Write f.", answer="sqrt(8)", fields={"tests": ["assert f(2) == 4"]})
SOLUTIONS = {
    "correct": ["def f(x): return abs(x)", "def f(x): return max(x, -x)"],
    "wrong": ["def f(x): return x", "def f(x): return 0"],
}
NESTED = "def f(a, b):\n    if a == 12:\n        if b >= a + 3:\n            return 1"
GUARDED = Task(key="guarded", prompt="f(a,b) a==12 b>=a+3", fields={"source": NESTED, "line": 4})
FAULT = Task(key="fault", prompt="41", fields={"files": {"a": "41"}, "oracle": {"a": "42"}})
EDIT = "<think>42</think><solution>\n```\n### a\n<<<<<<< SEARCH\n41\n=======\n42\n>>>>>>> REPLACE\n```\n</solution>"
BLOCK = Task(key="block", prompt="Extract g.", fields={"source": "def f(a):\n b = a * 2\n return b + 1"})
MAGNITUDE = Task(key="magnitude", prompt="Write tests of f.", fields=SOLUTIONS)
PROGRAM = {"reference": "def f(x):\n    return 2 * x\n", "inputs": [["float32[3]"]]}
TIMES = Task(key="times", prompt="Write a kernel.", fields=PROGRAM)
TWICE = "@kernel\ndef k(i, x, o):\n    o[i] = 2 * x[i]\ndef f(x):\n    o = empty(x)\n    k[len(x)](x, o)\n    return o"
QUERY = Task(key="t", prompt="?", answer="SELECT 1", fields={"schema": "CREATE TABLE t(a INTEGER);"})
INCREMENT = '#include <stdio.h>\nint main(void) { int a; scanf("%d", &a); printf("%d", a + 1); }'
NEXT = Task(key="next", prompt="?", answer=INCREMENT, fields={"tests": [{"input": "1", "output": "2"}]})
ENTRY = {"question": "Spell it backward, please: cat", "answer": "tac", "metadata": {}}
SPELLED = Task(key="gym", prompt="?", answer="tac", fields={"dataset": "spell_backward", "entry": ENTRY})
BENCH = """module bench; reg a; wire y; inverter unit(a, y);
initial begin a = 0; #1 $display("%d", y); a = 1; #1 $display("%d", y); $finish; end
endmodule"""
INVERTER = Task(key="inverter", prompt="?", fields={"testbench": BENCH, "rows": ["1", "0"]})
DESIGN = "module inverter(input a, output y); assign y = ~a; endmodule"
GRADER = "def grade(sample, item):\n    return len(sample['output_text']) / 100\n"
MINE = "def score(completion):\n    return len(completion) / 100\n"


def group(task: Task, *texts: str) -> Group:
    """Rollouts with these completions."""
    return Group(
        trajectories=tuple(
            Trajectory(
                task=task,
                segments=(Segment(actor="policy", token_ids=np.arange(2), trained=True, text=text),),
                stop_reason="stop",
            )
            for text in texts
        ),
        key=task.key,
    )


def rewards(folder: Path) -> tuple[dict[str, tuple[Reward, Group]], dict[str, tuple[Reward, Group]]]:
    """Rewards that run in workers, and those that run in sandboxes, each with what it scores; those available here."""
    mine = folder / "mine.py"
    mine.write_text(MINE)
    tier = find_tier().tier
    answers = group(SQUARE, r"\boxed{2\sqrt{2}}", r"\boxed{\sqrt{8}}", r"\boxed{x}", "none")
    in_workers: dict[str, tuple[Reward, Group]] = {
        "function": (Function(path=f"{mine}:score"), answers),
        "math_verify": (MathVerify(), answers),
        "patch_similarity": (PatchSimilarity(), group(FAULT, EDIT, "none")),
        "uses": (Uses(define=("kernel",)), group(TIMES, TWICE, "def f(x): return x", "def f(")),
        "refactored": (Refactored(), group(BLOCK, "def f(a):\n return g(a) + 1\ndef g(a):\n return a * 2", "(" * 3000)),
        "reasoning_gym": (ReasoningGym(), group(SPELLED, "<answer>tac</answer>", "<answer>cat</answer>")),
    }
    sandboxed: dict[str, tuple[Reward, Group]] = {
        "counted_work": (CountedWork(language="c", weakest=tier), group(NEXT, INCREMENT, "int main(")),
        "io_tests": (IOTests(weakest=tier), group(NEXT, "print(1 + int(input()))", "print(1)")),
        "openai_grader": (OpenAIGrader(type="python", source=GRADER, weakest=tier), answers),
        "python_tests": (PythonTests(weakest=tier), group(SQUARE, "def f(x): return x * x", "def f(x): return x")),
        "sql": (SQL(weakest=tier), group(QUERY, "SELECT 1", "SELEC")),
        "branch_distance": (BranchDistance(weakest=tier), group(GUARDED, "12 15", "3 4", "none")),
        "kernel": (Kernel(dialect="toy", weakest=tier), group(TIMES, TWICE, "def f(x): return x", "def f(")),
        "suite": (Suite(weakest=tier), group(MAGNITUDE, "assert f(-1) == 1", "assert f(1) == 2", "none")),
        "verilog": (Verilog(weakest=tier), group(INVERTER, DESIGN, "module inverter(")),
    }
    return _to_be_had(in_workers), _to_be_had(sandboxed)


def _to_be_had(made: dict[str, tuple[Reward, Group]]) -> dict[str, tuple[Reward, Group]]:
    found = {}
    for name, (reward, scored) in made.items():
        try:
            reward.prepare()
            found[name] = (reward, scored)
        except PosttrainError as error:
            print(f"without {name}: {error}", file=sys.stderr)
    return found


async def step(chosen: Mapping[str, tuple[Reward, Group]], number: int) -> None:
    """Score everything at once."""
    context = RewardContext(step=number)
    found = await asyncio.gather(*(reward.score(scored, context) for reward, scored in chosen.values()))
    failed = [score.explanation for scores in found for score in scores if score.status == "error"]
    assert not failed, failed


def held(folder: Path) -> dict[str, int]:
    """What this process and those below it hold."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "resident kB": resident >> 10,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "processes": len(descendants(os.getpid())),
        "temporary files": len(list(folder.rglob("*"))),
        "event loops": sum(isinstance(item, asyncio.AbstractEventLoop) for item in gc.get_objects()),
    }


def grown(first: Mapping[str, int], last: Mapping[str, int], steps: int = 1000) -> list[str]:
    """What is more at the end than it was, by more than comes and goes and over a twentieth.

    The same leak of each step is found in fewer steps: what is allowed shrinks with them.
    """
    one_in = 20 * max(1.0, 1000 / steps)
    return [
        f"{name}: {value} -> {last[name]}"
        for name, value in first.items()
        if last[name] - value > max(value // one_in, COME_AND_GO.get(name, 0))
    ]


def endure(steps: int, folder: Path) -> Sequence[dict[str, int]]:
    """Run `steps` steps; what was held in each tenth of them, the median of its readings."""
    working, sandboxed = rewards(folder)
    print(f"rewards: {', '.join([*working, *sandboxed])}", file=sys.stderr)
    rows, readings, filling = [], list[dict[str, int]](), min(FILLING, steps // 20)
    for number in range(1, steps + 1):
        chosen = dict(working)
        if number % SANDBOXED_EVERY == 0 or number <= filling:
            turn = number if number <= filling else number // SANDBOXED_EVERY
            chosen |= {k: v for k, v in sandboxed.items() if k != "counted_work" or turn % COUNTED_EVERY == 0}
        wait_for(step(chosen, number))
        if number % max(steps // 100, READ_EVERY) == 0 and number > filling:
            readings.append(held(folder))
        if number % (steps // 10) == 0:
            rows.append(
                {"step": number} | {name: median_low([reading[name] for reading in readings]) for name in readings[0]}
            )
            print(json.dumps(rows[-1]), file=sys.stderr)
            readings = []
    return rows


def main() -> int:
    """The table; 1 where anything grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--write", type=Path, help="Write the table to a JSON file.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="endurance-") as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        rows = endure(given.steps, Path(folder))
    shown = [list(row.values()) for row in (rows[0], rows[4], rows[-1])]
    print(f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in shown:
        print(f"| {' | '.join(map(str, row))} |")
    if given.write is not None:
        command = f"python -m benchmarks.endurance --steps {given.steps} --write {given.write}"
        tables = [{"columns": list(rows[0]), "rows": shown}]
        given.write.write_text(
            json.dumps({"title": "Long runs", "command": command, "tables": tables}, indent=1) + "\n"
        )
    worse = grown({k: v for k, v in rows[0].items() if k != "step"}, rows[-1], given.steps)
    for text in worse:
        print(f"grew: {text}")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
