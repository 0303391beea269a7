"""Journals are read in pieces of many lines, and what is no entry is named by its line."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.errors import UserError
from posttrain.runs import journal
from posttrain.runs.journal import read_lines, sound_lines


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(journal, "_TOGETHER", 3)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step, "stage": "rl", "a name": 0.5}) + "\n" for step in range(1, 9)))
    return path


def test_entries_share_their_names(small: Path) -> None:
    entries = read_lines(small)
    assert [entry["step"] for entry in entries] == list(range(1, 9))
    names = [name for entry in entries[:3] for name in entry if name == "a name"]
    assert len(set(map(id, names))) == 1


@pytest.mark.parametrize("line", ['{"step": 5}, {"step": 6}', "[]", "", "5", '{"step": "5"}', '{"step": 5', "{" * 5000])
def test_a_line_that_is_no_entry_is_named_and_the_others_are_sound(small: Path, line: str) -> None:
    lines = small.read_text().splitlines()
    lines[4] = line
    small.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl line 5 is not an entry"):
        read_lines(small)
    assert [entry["step"] for entry in sound_lines(small)] == [1, 2, 3, 4, 6, 7, 8]


def test_lines_that_make_an_entry_together_are_none(small: Path) -> None:
    small.write_text('{"step": 1,\n"a": [{}]}\n')
    with pytest.raises(UserError, match=r"line 1 is not an entry"):
        read_lines(small)


def test_more_lines_than_any_run_writes_are_refused(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_LINES", 7)
    for read in (read_lines, sound_lines):
        with pytest.raises(UserError, match="has 8 lines, and at most 7 are read"):
            read(small)
    (small.parent / "history.jsonl").write_text('{"kind": "' + "a" * 100 + '"}\n')
    monkeypatch.setitem(journal.LARGEST, "history.jsonl", 50)
    with pytest.raises(UserError, match=r"history\.jsonl has"):
        read_lines(small.parent / "history.jsonl")


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("metrics.jsonl", {"step": 1, "stage": "rl", "reward": [0.5]}),
        ("metrics.jsonl", {"step": 1, "reward": 0.5}),
        ("timing.jsonl", {"step": 1, "stage": "rl", "seconds": "1"}),
        ("evals.jsonl", {"step": 1, "name": ["rl"]}),
        ("evals.jsonl", {"step": 1, "name": "rl", "accuracy": [], "accuracy_interval": [0.0, 1.0]}),
        ("evals.jsonl", {"step": 1, "name": "rl", "accuracy": 0.5, "accuracy_interval": [0.0]}),
        ("evals.jsonl", {"step": 1, "name": "rl", "accuracy": 0.5, "accuracy_interval": [0.0, "1"]}),
    ],
)
def test_values_of_another_type_are_no_entry(tmp_path: Path, name: str, entry: dict[str, Any]) -> None:
    (tmp_path / name).write_text(json.dumps(entry) + "\n")
    with pytest.raises(UserError, match=r"jsonl line 1 is not an entry of a run"):
        read_lines(tmp_path / name)
    other = {"name": "rl"} if name == "evals.jsonl" else {"stage": "rl"}
    sound = {"step": 1, **other, "accuracy": None, "accuracy_interval": None}
    (tmp_path / name).write_text(json.dumps(sound) + "\n")
    assert len(read_lines(tmp_path / name)) == 1
