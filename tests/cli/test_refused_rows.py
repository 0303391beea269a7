"""Rows that no completion could be scored by are refused before anything is sampled: with file, line and reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.sandbox import missing_programs

SCHEMA = {"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}
CIRCLE = {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}


def called(schema: dict[str, Any]) -> dict[str, Any]:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [{"role": "user", "content": "Call f."}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    return {"messages": messages, "tools": [tool]}


DOUBLE = "def f(x): return x * 2"
SUITE = {"correct": [DOUBLE, "def f(x): return x + x"], "wrong": ["def f(x): return x"], "inputs": [[1], [2], [3]]}
SOURCE = {"issue": "the number is wrong", "files": {"a.py": "x = 1\n"}}
REPAIR = {**SOURCE, "oracle": {"a.py": "x = 2\n"}}
SUM = {
    "prompt": "Add two numbers.",
    "tests": [{"input": "1 2", "output": "3"}],
    "answer": "print(sum(map(int, input().split())))",
}
FUNCTION = {"prompt": "Write f.", "tests": ["assert f(1) == 2"], "answer": DOUBLE}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "no relevant document": (
        "reranked",
        {"query": "q", "documents": ["a", "b"], "relevant": [2], "order": [2, 1]},
        {"query": "q", "documents": ["a", "b"], "relevant": [], "order": [2, 1]},
        "without a relevant passage",
    ),
    "no relevant document in a list": (
        "list_metric",
        {"query": "q", "prompts": ["q a:", "q b:"], "relevant": [True, False], "prompt": "q"},
        {"query": "q", "prompts": ["q a:", "q b:"], "relevant": [False, False], "prompt": "q"},
        "has no relevant document",
    ),
    "no query that its list has": (
        "{kind: list_metric, together: query}",
        {"query": "q", "relevant": True, "prompt": "q a:"},
        {"relevant": False, "prompt": "q b:"},
        "has no field 'query', by which the reward 'list_metric' draws and scores tasks together",
    ),
    "no relevant document in the rows of a query": (
        "{kind: list_metric, together: query}",
        {"query": "q", "relevant": True, "prompt": "q a:"},
        {"query": "other", "relevant": False, "prompt": "other a:"},
        "the others with its query have no relevant document",
    ),
    "no test": ("io_tests", SUM, {**SUM, "tests": []}, "tests"),
    "no assert": ("python_tests", FUNCTION, {**FUNCTION, "tests": []}, "has no field 'tests'"),
    "a reference that fails a test": (
        "io_tests",
        SUM,
        {**SUM, "answer": "print(0)"},
        "reference",
    ),
    "a reference that fails an assert": (
        "python_tests",
        FUNCTION,
        {**FUNCTION, "answer": "def f(x): return 0"},
        "reference",
    ),
    "correct solutions that disagree": (
        "suite",
        SUITE,
        {**SUITE, "correct": [DOUBLE, "def f(x): return x * x"]},
        "disagree",
    ),
    "an oracle that is the source": (
        "patch_similarity",
        REPAIR,
        {**REPAIR, "oracle": SOURCE["files"]},
        "changes nothing",
    ),
    "a path outside": ("patch_similarity", REPAIR, {**REPAIR, "oracle": {"../a.py": "x = 2\n"}}, "'../a.py' in oracle"),
    "an absolute path": ("patch_similarity", REPAIR, {**REPAIR, "files": {"/etc/a": "x"}}, "'/etc/a' in files"),
    "a schema elsewhere": ("tool_calls", called({"type": "object"}), called(SCHEMA), "https://example.org/a.json"),
    "a schema of itself": ("tool_calls", called({"type": "object"}), called(CIRCLE), "refers to itself"),
}
NEEDS = {"io_tests", "python_tests", "suite"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_is_refused_before_sampling(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reward, good, bad, reason = CASES[name]
    if reward in NEEDS and (missing := missing_programs(("bwrap",))):
        pytest.skip(f"needs {' and '.join(missing)}")
    monkeypatch.chdir(tmp_path)
    command = [
        "run",
        "dr_grpo",
        "model=pebble",
        "tasks=mine.jsonl",
        f"reward={reward}",
        "threads=1",
        "evaluation.by=none",
    ]
    rows = [{**good, "id": f"good {n}"} for n in range(4)]
    for place in (1, 3):
        given = [*rows[:place], {**bad, "id": "bad"}, *rows[place + 1 :]]
        Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
        assert main(command) == 2
        shown = capfd.readouterr().err
        assert f"mine.jsonl line {place + 1}" in shown.replace(":", " line ") and reason in shown, shown
        assert not [*Path().rglob("*.parquet")], "nothing was sampled"
