"""What is refused of a user's data before anything is sampled, each with the file and the line of its row."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.components.rewards.counted_work import CountedWork
from posttrain.components.rewards.io_tests import IOTests
from posttrain.components.rewards.kernel import Kernel
from posttrain.components.rewards.python_tests import PythonTests
from posttrain.components.rewards.suite import Suite
from posttrain.components.selections.valid_calls import tree_fault
from posttrain.errors import TaskFault, UserError
from posttrain.grading.references import MOST_CHECKED, check_references
from posttrain.types import Score, Task, Trajectory
from tests.components.rewards.programs import tier_for

NEXT = [{"input": "1\n", "output": "2\n"}]
GOOD = {"prompt": "?", "completion": "?"}
BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "a reference that fails its test": (
        "python_tests",
        {"answer": "def f(x):\n    return x", "tests": ["assert f(1) == 1", "assert f(2) == 3"]},
        "fails its own tests: fails 1 of 2 tests; f(2) ",
    ),
    "a program that fails its test": (
        "io_tests",
        {"answer": "print(int(input()) + 2)", "tests": NEXT},
        "fails its own tests: test 1 of 1: prints '3' instead of '2'",
    ),
    "a task without a test": ("io_tests", {"tests": []}, "has no field 'tests'"),
    "right solutions that disagree": (
        "suite",
        {
            "correct": ["def f(x):\n    return abs(x)", "def f(x):\n    return x"],
            "wrong": ["def f(x):\n    return -x"],
            "inputs": [[1], [-2]],
        },
        "has correct solutions that disagree: f(-2) is 2 by the first, -2 by number 2",
    ),
    "no relevant document": ("list_metric", {"prompts": ["a"], "relevant": [False]}, "has no relevant document"),
    "another number of prompts": (
        "list_metric",
        {"prompts": ["a"], "relevant": [True, False]},
        "has 1 prompts, and 2 entries in relevant; give one for each document",
    ),
    "a schema elsewhere": (
        "tool_calls",
        {"answer": "f(1)", "tools": [{"name": "f", "parameters": {"$ref": "https://example.org"}}]},
        "tool 1: $ref 'https://example.org' is remote",
    ),
    "an oracle that is the source": (
        "patch_similarity",
        {"files": {"a.py": "x"}, "oracle": {"a.py": "x"}},
        "has an oracle that changes nothing",
    ),
    "a path outside": (
        "patch_similarity",
        {"files": {"../a.py": "x"}, "oracle": {"../a.py": "y"}},
        "has the path '../a.py' in files",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_refusal_names_file_line_and_reason(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reward, row, said = BAD[name]
    monkeypatch.chdir(tmp_path)
    Path("mine.jsonl").write_text(json.dumps({**GOOD, **row}) + "\n")
    settings = [f"weakest={tier_for()}"] if reward in ("python_tests", "io_tests", "suite") else []
    assert main(["score", reward, "mine.jsonl", *settings]) == 2
    printed = capfd.readouterr().err
    assert "mine.jsonl line 1: " in printed and said in printed


def test_a_run_names_the_row(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"What is {n}?", "options": ["a", "b"], "answer": "A" if n != 4 else "C"} for n in range(9)]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["run", "grpo", "tasks=mine.jsonl", "reward=choice", "evaluation.by=none", "--dry-run"]
    assert main(command) == 2
    assert "mine.jsonl line 5: 'answer' is 'C'" in capfd.readouterr().err, "where choices are read as a column"
    assert main([*command, "tasks.columns.choices=null"]) == 2
    assert "mine.jsonl line 5: task " in capfd.readouterr().err, "where the reward reads them"


def test_references_that_pass_and_texts_that_are_none() -> None:
    tests = {"tests": ["assert f(2) == 3"]}
    python = PythonTests(weakest=tier_for())
    python.check([Task(key="t", prompt="?", answer="```python\ndef f(x): return x + 1\n```", fields=tests)])
    python.check([Task(key="t", prompt="?", answer="3", fields=tests)])
    python.check([Task(key="t", prompt="?", demonstrations=("def f(x): return 0",), fields=tests)])
    wrong = Task(key="w", prompt="?", fields={**tests, "reference": "def f(x): return 0"})
    with pytest.raises(TaskFault, match="reference program of task 'w' fails its own tests"):
        python.check([wrong])
    PythonTests(references=0).check([wrong])
    with pytest.raises(UserError, match="task 't' is in the language 'cobol'"):
        IOTests().check([Task(key="t", prompt="?", fields={"language": "cobol", "tests": NEXT})])


def test_counted_work_refuses_tasks_without_a_test_or_a_reference_and_references_that_fail() -> None:
    reward = CountedWork(weakest=tier_for())
    with pytest.raises(TaskFault, match="task 't' has no field 'tests'"):
        reward.check([Task(key="t", prompt="?", answer="print(2)")])
    with pytest.raises(TaskFault, match="task 't' has no reference program"):
        reward.check([Task(key="t", prompt="?", fields={"tests": NEXT})])
    with pytest.raises(TaskFault, match="test 1 of 1: prints '3' instead of '2'"):
        reward.check([Task(key="t", prompt="?", answer="print(3)", fields={"tests": NEXT})])
    with pytest.raises(TaskFault, match="ended with code 1: SyntaxError"):
        reward.check([Task(key="t", prompt="?", answer="print(", fields={"tests": NEXT})])
    reward.check([Task(key="t", prompt="?", answer="print(2)", fields={"tests": NEXT})])


def test_solutions_are_compared_on_inputs_of_their_domain() -> None:
    fields = {"wrong": ["def f(x): return 9"], "domain": [-5, 5, 0]}
    right = ["def f(x): return abs(x)", "def f(x): return max(x, -x)"]
    reward = Suite(weakest=tier_for())
    reward.check([Task(key="t", prompt="?", fields={**fields, "correct": right})])
    with pytest.raises(TaskFault, match=r"disagree: f\(\S+\) is \d by the first, a ValueError by number 3"):
        lost = "def f(x):\n    if x < -2: raise ValueError\n    return abs(x)"
        reward.check([Task(key="t", prompt="?", fields={**fields, "correct": [*right, lost]})])
    reward.check([Task(key="t", prompt="?", fields={"wrong": fields["wrong"], "correct": [right[0], "x = 1"]})])


def test_a_selection_of_calls_refuses_schemas_elsewhere() -> None:
    tools = [{"name": "f", "parameters": {"$ref": "#"}}]
    assert "$ref '#' refers to itself" in tree_fault(
        Task(key="t", prompt="?", answer="[f(a=1)]", fields={"tools": tools})
    )


@pytest.mark.parametrize("bad", [1, 37, 98])
def test_every_row_up_to_the_bound_is_checked(bad: int) -> None:
    tasks = [Task(key=str(n), prompt="?", answer=f"```\nprint({n})\n```") for n in range(99)]
    seen: list[str] = []

    async def score(trajectory: Trajectory, program: str) -> Score:
        seen.append(trajectory.task.key)
        right = trajectory.task.key != str(bad)
        return Score(value=float(right), status="ok" if right else "wrong", explanation="test 1")

    for kind in (PythonTests, IOTests, CountedWork, Suite, Kernel):
        assert kind().references == MOST_CHECKED == 1000
    with pytest.raises(TaskFault, match=f"task '{bad}' fails its own tests: test 1"):
        asyncio.run(check_references(tasks, score, MOST_CHECKED))
    others = [task for task in tasks if task.key != str(bad)]
    seen.clear()
    asyncio.run(check_references(others, score, MOST_CHECKED))
    assert seen == [task.key for task in others]
    seen.clear()
    asyncio.run(check_references(others, score, 7))
    assert seen == [others[place * 98 // 7].key for place in range(7)]


def test_a_longer_file_and_progress_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [Task(key=str(n), prompt="?", answer="print(1)", fields={"tests": NEXT}) for n in range(70)]
    assert IOTests(references=69).notes(tasks) == [
        "the references of 69 of 70 tasks are run before training, evenly spread; reward.references=70 runs all"
    ]
    assert not IOTests(references=70).notes(tasks) and not IOTests(references=0).notes([])

    async def score(trajectory: Trajectory, program: str) -> Score:
        return Score(value=1.0, status="ok")

    asyncio.run(check_references(tasks, score, 70))
    assert not capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("posttrain.grading.references.SILENT_S", -1.0)
    asyncio.run(check_references(tasks, score, 70))
    assert capsys.readouterr().err == "".join(f"\rchecked {n} of 70 tasks" for n in (32, 64, 70)) + "\n"
