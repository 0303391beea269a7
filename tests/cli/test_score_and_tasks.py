"""score and tasks: rewards and generated tasks without any model."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.tool_calls import ToolCalls


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def answer(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


ROWS = [
    {"prompt": "What is 6 * 7?", "answer": "42", "completion": "6 * 7 = 42"},
    {"prompt": "What is 6 * 8?", "answer": "48", "completion": "46"},
    {"prompt": "What is 6 * 9?", "answer": "54"},
]


def test_scores_of_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    found = answer(capfd, "score", "match", "mine.jsonl", "wrong=-0.5", "--out", "scores.jsonl")
    assert (found["completions"], found["ok"], found["wrong"], found["error"]) == (2, 1, 1, 0)
    assert found["mean"] == 0.25 and [row["value"] for row in found["scores"]] == [1.0, -0.5]
    assert [json.loads(line) for line in Path("scores.jsonl").read_text().splitlines()] == found["scores"]
    assert main(["score", "match", "mine.jsonl"]) == 0
    assert "2 completions: 1 ok, 1 wrong, 0 error; mean value 0.5" in capfd.readouterr().out


def test_a_score_that_fails_is_no_zero(capfd: pytest.CaptureFixture[str]) -> None:
    Path("bare.jsonl").write_text('{"prompt": "What is 6 * 7?", "completion": "42"}\n')
    found = answer(capfd, "score", "match", "bare.jsonl")
    assert found["error"] == 1 and found["mean"] is None and found["scores"][0]["value"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["match", "none.jsonl"], "a column 'completion'"),
        (["reward_model", "mine.jsonl"], "write --model reward=FOLDER"),
        (["match", "missing.jsonl"], "missing.jsonl"),
        (["match", "mine.jsonl", "--out", "scores.csv"], "JSON lines"),
    ],
)
def test_mistakes(capfd: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    Path("mine.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    Path("none.jsonl").write_text(json.dumps(ROWS[2]) + "\n")
    assert main(["score", *words]) == 2
    assert message in capfd.readouterr().err


def test_generated_tasks_come_back_from_their_file(capfd: pytest.CaptureFixture[str]) -> None:
    found = answer(capfd, "tasks", "tool_calls", "size=30", "to=calls.jsonl")
    assert found == {"kind": "tool_calls", "tasks": 30, "file": "calls.jsonl", "probes": None}
    made, read = ToolCalls(size=30).load(), Files(path="calls.jsonl").load()
    for ours, theirs in zip(made, read, strict=True):
        assert (ours.prompt, ours.answer, ours.demonstrations) == (theirs.prompt, theirs.answer, theirs.demonstrations)
        assert ours.fields["tools"] == theirs.fields["tools"] and ours.domain == theirs.domain


@pytest.mark.slow
def test_what_a_reward_gives_to_probes_of_them(capfd: pytest.CaptureFixture[str]) -> None:
    form = "--form=<call>{answer}</call>"
    probes = answer(capfd, "tasks", "tool_calls", "size=30", "reward=calls", form)["probes"]
    assert probes["gold"]["mean"] == 1.0 and probes["empty"]["mean"] == 0.0 == probes["near_miss"]["rewarded"]
    assert main(["tasks", "tool_calls", "size=30", "reward=calls", form]) == 0
    assert "mean value" in capfd.readouterr().out


def test_what_a_file_cannot_hold_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "shapes", "size=5", "to=e.jsonl"]) == 2
    assert "images, which this file cannot hold" in capfd.readouterr().err
    assert main(["tasks", "arithmetic", "size=5", "to=e.csv"]) == 2
    assert main(["tasks", "arithmetik"]) == 2


@pytest.mark.slow
def test_generated_tasks_are_probed_by_their_reward(capfd: pytest.CaptureFixture[str]) -> None:
    found = answer(capfd, "tasks", "repairs", "size=4", "level=3", "to=repairs.jsonl")["probes"]
    assert (found["gold"]["mean"], found["empty"]["mean"]) == (1.0, -1.0) and found["of_patches"]["rewarded"] == 0
    assert answer(capfd, "tasks", "repairs", "size=4", "to=more.jsonl", "reward=none")["probes"] is None
    assert main(["tasks", "tool_requests", "size=4", "to=calls.jsonl"]) == 0
    assert "probes of 3 tasks by the reward tool_calls" in capfd.readouterr().out
