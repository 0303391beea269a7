"""Rows of other programs' data: tools, steps, separators, missing answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.tasks.files import Files
from posttrain.components.tasks.mixture import Mixture
from posttrain.errors import UserError
from tests.components.tasks.written import jsonl, load_one

USER = {"role": "user", "content": "Will it rain?"}
CALL = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "sky"}}]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "sunny"}
REPLY = {"role": "assistant", "content": "No."}


def refusal(folder: Path, row: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        load_one(folder, row)
    return str(caught.value)


@pytest.mark.parametrize("name", ["reference", "reference_answer", "ideal"])
def test_answers_of_openai(tmp_path: Path, name: str) -> None:
    assert load_one(tmp_path, {"messages": [USER], name: "No"}).answer == "No"


def test_calls_and_results_are_a_prompt(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"messages": [USER, CALL, RESULT, REPLY]})
    assert [message["role"] for message in task.prompt] == ["user", "assistant", "tool"]  # type: ignore[index]
    assert task.prompt[1]["content"] == "" and task.prompt[1]["tool_calls"] == CALL["tool_calls"]  # type: ignore
    assert task.demonstrations == ("No.",)


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": "Let me see."}])
def test_a_call_is_no_demonstration(tmp_path: Path, content: dict[str, Any]) -> None:
    message = refusal(tmp_path, {"messages": [USER, {**CALL, **content}]})
    assert (
        "line 1: the last message of 'messages' calls a tool" in message and "Write the call into 'content'" in message
    )
    message = refusal(tmp_path, {"prompt": "Will it rain?", "completion": [{**CALL, **content}]})
    assert "'completion' calls a tool" in message


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"prompt": "1+1?", "completions": ["One", "Two"], "labels": [True, False]}, "'completions' and 'labels'"),
        ({"question": {"problem": "1+1?"}, "label": {"steps": []}}, "'label.steps'"),
        (
            {"input": "What is 1 + 1? Step 1: 2 \u043a\u0438", "label": "What is 1 + 1? Step 1: 2 +"},
            "'input' and 'label'",
        ),
    ],
)
def test_labels_of_steps_are_refused_with_what_to_do(tmp_path: Path, row: dict[str, Any], columns: str) -> None:
    message = refusal(tmp_path, row)
    assert f"line 1: {columns} label each step" in message and "one row per step" in message


def test_prompts_of_such_rows_can_be_taken(tmp_path: Path) -> None:
    row = {"prompt": "1+1?", "completions": ["One"], "labels": [True]}
    assert load_one(tmp_path, row, columns={"completion": None}).prompt == "1+1?"


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("\t", "tabs")])
def test_separators_of_csv(tmp_path: Path, mark: str, word: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f'question{mark}answer\n"1, 2 or {mark}?"{mark}1,5\n')
    source = Files(path=str(path))
    [task] = source.load()
    assert (task.prompt, task.answer) == (f"1, 2 or {mark}?", "1,5")
    assert f"(CSV, separated by {word})" in source.describe()


def test_a_comma_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("question,answer;x\nWhy?,1;2\n")
    assert Files(path=str(path), columns={"answer": "answer;x"}).load()[0].answer == "1;2"


def test_missing_answers_are_named_with_their_lines(tmp_path: Path) -> None:
    rows = [{"prompt": f"{i}?", "answer": None if i in (2, 4, 5) else "1"} for i in range(1, 8)]
    source = Files(path=str(jsonl(tmp_path / "x.jsonl", rows)))
    assert f"no answer      3 rows: {tmp_path}/x.jsonl lines 2, 4 and 5" in source.describe()
    rows = [{"prompt": f"{i}?", "answer": "1" if i == 3 else None} for i in range(1, 9)]
    source = Files(path=str(jsonl(tmp_path / "y.jsonl", rows)))
    assert f"7 rows: {tmp_path}/y.jsonl lines 1, 2, 4, 5, 6, ..." in source.describe()
    mixed = Mixture(sources={"a": source})
    assert mixed.place(mixed.load()[3].key) == f"{tmp_path}/y.jsonl line 4"


def test_a_name_twice_in_a_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"prompt": "a"}) + '\n{"prompt": "b", "extra": {"x": 1, "x": 2}}\n')
    with pytest.raises(UserError, match=r"line 2: .*the key 'x' is there twice"):
        Files(path=str(path)).load()
