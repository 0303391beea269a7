"""Prompts that are made of the columns of a field: patches, suites, rankings, visits to a shop, calls."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.components.tasks.code_lines import CodeLines
from posttrain.components.tasks.files import Files
from posttrain.errors import UserError
from tests.components.rewards.programs import tier_for
from tests.components.tasks.written import load, load_one

FUNCTION = "def f(x):\n    return abs(x)\n"
TOOLS = [{"type": "function", "function": {"name": "cook", "parameters": {"type": "object"}}}]
CALLS = [{"id": "1", "type": "function", "function": {"name": "cook", "arguments": '{"heat": 3}'}}]
ASKED = {"role": "user", "content": "Heat 3."}
CALLING = {"role": "assistant", "content": None, "tool_calls": CALLS}
SEARCH = {"type": "type_and_submit", "name": "search", "text": "red tea"}
CLICK = {"type": "click", "name": "red tea"}
EDIT = (
    "<think>so</think><solution>\n```\n### a.py\n<<<<<<< SEARCH\nx=1\n=======\nx=2\n>>>>>>> REPLACE\n```\n</solution>"
)

PATCH = {"issue": "Two.", "files": {"a.py": "x=1\n"}, "oracle": {"a.py": "x=2\n"}}
SUITE = {"correct": [FUNCTION, "def f(x): return max(x, -x)"], "wrong": ["def f(x): return x"]}
RANKING = {"query": "metals?", "documents": ["salt", "zinc"], "relevant": [2], "order": [2, 1]}
VISIT = {"pages": [["search", "help"], "results: red tea"], "actions": [SEARCH], "target": CLICK}
CHOICE = {"question": "A metal?", "options": ["salt", "zinc"], "answer": "zinc"}
REFACTORED = "def f(x):\n    return g(x)\n\ndef g(x):\n    return abs(x)\n"
CALLED = '<think>so</think>\n<tool_call>\n{"name": "cook", "parameters": {"heat": 3}}\n</tool_call>'


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        (PATCH, "Two.\n### a.py\nx=1\n\n"),
        (SUITE, "Write tests of f, each in a line: assert f(...) == ...\n\ndef f(x):\n    return abs(x)\n"),
        (RANKING, "metals?\n1 salt\n2 zinc\n:"),
        (VISIT, "search; help\n> type_and_submit search red tea\nresults: red tea\n:"),
        (CHOICE, "A metal?\n\nA) salt\nB) zinc\n\nAnswer with the label of one choice."),
        ({"source": FUNCTION}, FUNCTION),
    ],
)
def test_prompts(row: dict[str, Any], prompt: str, tmp_path: Path) -> None:
    assert load_one(tmp_path, row).prompt == prompt
    assert load_one(tmp_path, {**row, "question": "Why?", "options": None}).prompt == "Why?"


def test_calls_are_the_answer_and_tools_are_shown(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"messages": [ASKED, CALLING], "tools": TOOLS})
    shown = {"role": "system", "content": 'Tools:\n{"name": "cook", "parameters": {"type": "object"}}'}
    assert (task.prompt, json.loads(task.answer or "")) == ((shown, ASKED), CALLS)
    opened = [{"role": "system", "content": "Be brief."}, ASKED]
    task = load_one(tmp_path, {"messages": opened, "tools": TOOLS, "answer": "cook(heat=3)"})
    assert task.prompt[0]["content"] == f"Be brief.\n\n{shown['content']}"  # type: ignore[index]
    opened[0]["content"] = "cook(heat) heats."
    assert load_one(tmp_path, {"messages": opened, "tools": TOOLS, "answer": "x"}).prompt == tuple(opened)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**VISIT, "actions": []}, "'actions' has 0 of 1"),
        ({**VISIT, "pages": [3, 4]}, "a page is a text, or a list"),
        ({**VISIT, "pages": "home"}, "'pages' must be a list"),
        ({**RANKING, "documents": [1]}, "'documents' must be a list of texts"),
        ({**RANKING, "query": 3}, "'query' must be a text"),
        ({**SUITE, "correct": "f"}, "'correct' must be a list"),
    ],
)
def test_what_is_no_such_column(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 1: ") as caught:
        load(tmp_path, row)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("reward", "row", "completion"),
    [
        ("patch_similarity", PATCH, EDIT),
        ("reranked", RANKING, "<think>2</think><answer>[2] > [1]</answer>"),
        ("next_action", VISIT, json.dumps({"rationale": "red", "action": CLICK})),
        ("choice", CHOICE, "so \\boxed{B}"),
        ("tool_calls", {"messages": [ASKED, CALLING], "tools": TOOLS}, CALLED),
        pytest.param("refactored", {"source": FUNCTION}, REFACTORED, marks=pytest.mark.slow),
        pytest.param("suite", SUITE, "assert f(-1) == 1", marks=pytest.mark.slow),
    ],
)
def test_a_file_of_ones_own_is_scored(
    reward: str, row: dict[str, Any], completion: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if reward == "refactored":
        pytest.importorskip("tree_sitter")
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({**row, "completion": completion}) + "\n")
    weakest = [f"weakest={tier_for()}"] if reward == "suite" else []
    assert main(["score", reward, str(file), *weakest]) == 0
    assert "1 completions: 1 ok" in capfd.readouterr().out


def test_numbers_of_relevant_documents_are_as_good_as_true_and_false(tmp_path: Path) -> None:
    from posttrain.components.rewards.list_metric import ListMetric

    task = load_one(tmp_path, RANKING)
    assert task.fields["prompts"] == ["metals?\nsalt\nscore 0 to 10:", "metals?\nzinc\nscore 0 to 10:"]
    ListMetric().check([task])
    for wrong in ([3], [], [0], ["2"]):
        with pytest.raises(UserError):
            ListMetric().check([load_one(tmp_path, {**RANKING, "relevant": wrong})])


def test_a_folder_of_python_has_a_row_for_each_function(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "a.py").write_text(f"import os\n\n\n{FUNCTION}")
    longer = "def g(a):\n    b = a * 2\n    return b + 1\n"
    (tmp_path / "own" / "b.py").write_text(f"{FUNCTION}\n\n@cache\n{longer}\n\n{longer}")
    tasks = Files(path=str(tmp_path))
    [task] = tasks.load()
    assert (task.prompt, task.fields["function"], task.fields["path"]) == (longer, "g", "own/b.py")
    assert "functions of 2 Python files" in tasks.describe() and len(tasks.fingerprint) == 2
    (tmp_path / "a.py").write_text("def f(:\n")
    with pytest.raises(UserError, match=r"a\.py is not read as Python"):
        Files(path=str(tmp_path)).load()


def test_lines_of_ones_own_code_are_cut(tmp_path: Path) -> None:
    source = "def g(a):\n    b = a * 2\n\n    return b + 1\n"
    (tmp_path / "a.py").write_text(source)
    cut = CodeLines(size=500, tasks=Files(path=str(tmp_path)))
    tasks = cut.load()
    # 9, 9 and 12 characters, cut from the third to the last but one
    assert len(tasks) == 5 + 5 + 8 == len({task.prompt for task in tasks})
    for task in tasks:
        assert source.startswith(f"{task.prompt}{task.answer}\n")
        assert f"{task.prompt}{task.answer}".endswith(task.fields["line"])
    assert len({task.fields["variant_of"] for task in tasks}) == 1
    (tmp_path / "a.py").write_text("def g():\n 1\n 2\n")
    assert {task.fields["line"] for task in CodeLines(tasks=Files(path=str(tmp_path))).load()} == {"def g():"}
    with pytest.raises(UserError, match="no line of the code has 6 characters"):
        CodeLines(tasks=Files(path=str(_short(tmp_path / "x.jsonl")))).load()


def _short(path: Path) -> Path:
    path.write_text('{"prompt": "a=b"}\n')
    return path
